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

// The owner's side of bounced reads. In a bounced read, the owner copies a contiguous run of a
// device pool into host memory, where the reader can read it over another transport. Each reader
// has kSlots slots of kSlotBytes and chooses the slot for each request. So no reader waits for
// another, and no slot has to be given back. Copies into one slot run in the order of the requests.
// KV thread only, never from callbacks of the transport.
class DeviceStaging {
 public:
  static constexpr uint32_t kSlots = 8;
  static constexpr uint64_t kSlotBytes = 1 << 20;
  static constexpr size_t kReaders = 64;
  // Max copies under way for one reader. A reader can have more copies under way than slots,
  // because copies that it requested before a Disconnect may still be running.
  static constexpr uint32_t kMaxUnderWay = 4 * kSlots;

  // `inner` sends the answers to readers, and allocates the slots in host memory from which they
  // read. Both pointers must outlive this object.
  DeviceStaging(DeviceRuntime* runtime, Transport* inner) : runtime_(runtime), inner_(inner) {}
  // Waits for the copies under way.
  ~DeviceStaging();

  // Adds a pool that readers may ask for. Pools are numbered from 0.
  void AddPool(const std::byte* data, size_t bytes) { pools_.push_back({data, bytes}); }
  // Handles one request. Every request gets an answer, unless its reader can't be reached. An
  // invalid request, or a request beyond kMaxUnderWay, is answered with the reason.
  void Stage(const StageNote& note);
  // Answers the requests whose copies have finished. Returns true if there were any.
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
  std::unique_ptr<DeviceCopies> copies_;  // created by the first request
  std::vector<Pool> pools_;
  std::map<uint64_t, Reader> readers_;
  // Connections to readers that got a refusal and have no slots, oldest first. They stay connected
  // for a while, because a note may be lost if its peer is disconnected directly after it was sent.
  std::deque<PeerId> refused_;
};

}  // namespace baton
