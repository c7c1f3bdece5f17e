#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/device/staging_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// The reader's side of bounced reads: asks owners to copy runs of their pools into slots of host
// memory (DeviceStaging is their side), and reads those over another transport into host memory of
// ours. KV thread only.
class BouncedReads {
 public:
  // A run of a peer's pool, of at most DeviceStaging::kSlotBytes.
  struct Run {
    PeerId peer = -1;
    uint32_t pool = 0;  // which of the peer's
    uint64_t offset = 0;
    size_t bytes = 0;
  };
  // Called once for each run that was asked for, from OnStaged, `inner` or EndWaiting. `landing` is
  // the caller's until Return, whatever the status; null where the run had a place of its own.
  using Arrived = std::function<void(const absl::Status& status, std::byte* landing)>;

  // `inner` reads and carries what is asked. Both must outlive all runs, the runtime this object.
  BouncedReads(DeviceRuntime* runtime, Transport* inner);
  // No run is under way.
  ~BouncedReads();

  // Asks for a run, which goes to `to`, host memory, or, where that is null, to one of our landing
  // places. False when its peer has no slot for us, there is no landing place, or notes to the peer
  // wait already: later. After an error nothing has been asked.
  absl::StatusOr<bool> Ask(const Run& run, std::byte* to, Arrived arrived);
  // A landing place is free again.
  void Return(std::byte* landing) { free_landings_.push_back(landing); }
  // An answer, perhaps to nothing of ours.
  void OnStaged(const StagedNote& note);

  // Ends a peer's runs whose answer has not come. The others end with the inner transport's reads.
  void EndWaiting(PeerId peer, const absl::Status& why);
  // A peer of which no run is under way.
  void Forget(PeerId peer);

 private:
  struct Bounce {
    Run run;
    std::byte* to;
    std::byte* landing;
    uint32_t slot;
    Arrived arrived;
    bool reading = false;  // from the slot
  };

  void End(uint64_t number, const absl::Status& status);

  DeviceRuntime* const runtime_;
  Transport* const inner_;
  const uint64_t reader_;  // as owners know us
  uint64_t last_ = 0;
  std::map<uint64_t, Bounce> bounces_;                  // under way, by number
  std::map<PeerId, std::vector<uint32_t>> free_slots_;  // at each peer
  std::byte* landings_ = nullptr;                       // pinned; made when one is needed
  std::vector<std::byte*> free_landings_;
};

}  // namespace baton
