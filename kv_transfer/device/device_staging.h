#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/device/device_copies.h"
#include "kv_transfer/device/staging_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// The owner's side of bounced reads: copies runs of device pools into host memory that readers can
// read over another transport. Each reader has kSlots slots of kSlotBytes, and says what goes into
// which: they are its credit, so that nobody waits for another, and nothing has to be given back.
// Copies into one slot run in the order of the requests. KV thread only, never from callbacks of
// the transport.
class DeviceStaging {
 public:
  static constexpr uint32_t kSlots = 8;
  static constexpr uint64_t kSlotBytes = 1 << 20;
  static constexpr size_t kReaders = 64;
  // The most copies that may be under way for one reader. That is more than it has slots, because
  // copies that it asked for before a Disconnect may not have ended yet.
  static constexpr uint32_t kMostUnderWay = 4 * kSlots;

  // `inner` carries the answers and allocates the slots. Both must outlive it.
  DeviceStaging(DeviceRuntime* runtime, Transport* inner) : runtime_(runtime), inner_(inner) {}
  // Waits for its copies.
  ~DeviceStaging();

  // Memory that may be asked for; counted from 0.
  void AddPool(const std::byte* data, size_t bytes) { pools_.push_back({data, bytes}); }
  // One request. It is answered, unless its reader can't be reached; one that asks for what can't
  // be, or has more than kMostUnderWay, with why.
  void Stage(const StageNote& note);
  // Answers what has been copied; true when something was.
  bool Progress() { return copies_ != nullptr && copies_->Progress(); }
  bool busy() const { return copies_ != nullptr && copies_->under_way() > 0; }

 private:
  struct Pool {
    const std::byte* data;
    size_t bytes;
  };
  struct Slots {
    TransportMemory memory;
    bool pinned = false;
  };
  struct Reader {
    Slots slots;
    PeerId peer = -1;
    std::string address;
    uint32_t under_way = 0;
  };

  absl::Status TryStage(const StageNote& note);
  absl::StatusOr<Reader*> FindReader(const StageNote& note);
  absl::StatusOr<Slots> NewSlots();
  absl::StatusOr<Slots> SlotsOfOneThatIsGone();
  void OnCopied(uint64_t reader, uint64_t id, uint32_t slot, const absl::Status& status);
  void Answer(const StagedNote& note, const std::string& address, PeerId* peer);

  DeviceRuntime* const runtime_;
  Transport* const inner_;
  std::unique_ptr<DeviceCopies> copies_;  // made with the first request
  std::vector<Pool> pools_;
  std::map<uint64_t, Reader> readers_;
  // Readers without slots to which a refusal went, oldest first. They stay connected for a while: a
  // note to a peer that is disconnected at once may never go out.
  std::deque<PeerId> refused_;
};

}  // namespace baton
