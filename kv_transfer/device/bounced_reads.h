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

// The reader's side of bounced reads, which go through host memory of both processes. It asks the
// owner of a pool to copy contiguous runs of the pool into slots, which are host memory of the
// owner (DeviceStaging is the owner's side). Then it reads the slots over another transport into
// this process's host memory. KV thread only.
class BouncedReads {
 public:
  // A contiguous run of a peer's pool, at most DeviceStaging::kSlotBytes long.
  struct Run {
    PeerId peer = -1;
    uint32_t pool = 0;  // index among the peer's pools
    uint64_t offset = 0;
    size_t bytes = 0;
  };
  // Called once for each read that Ask has begun, by OnStaged, by EndWaiting or in a callback of
  // the inner transport. `landing` is the landing buffer with the bytes. It belongs to the receiver
  // until Return is called with it, also if the status is an error. `landing` is null if Ask was
  // given a destination.
  using Arrived = std::function<void(const absl::Status& status, std::byte* landing)>;

  // `inner` is the transport that carries reads and messages between the processes. Both pointers
  // must outlive all reads that Ask has begun, and `runtime` must outlive this object too.
  BouncedReads(DeviceRuntime* runtime, Transport* inner);
  // Every run (contiguous read) that Ask accepted must have ended.
  ~BouncedReads();

  // Begins to read a run, which is a contiguous range of a peer's pool. The bytes go to `to`, in
  // host memory. If `to` is null, they go to a free landing buffer (pinned memory of this object).
  // Returns false, and does nothing, while something is used up: the peer's slots for this reader,
  // the landing buffers, or the queue of messages to the peer. After an error nothing has been
  // asked for.
  absl::StatusOr<bool> Ask(const Run& run, std::byte* to, Arrived arrived);
  // Takes back `landing`, the pinned buffer that an Arrived callback has got.
  void Return(std::byte* landing) { free_landings_.push_back(landing); }
  // Takes the answer of a pool's owner to a run that Ask requested. Ignores answers to runs that
  // this object does not know.
  void OnStaged(const StagedNote& note);

  // Ends the reads that `peer` has not answered yet, with the status `why`. A read that the peer
  // has answered ends when the inner transport ends it.
  void EndWaiting(PeerId peer, const absl::Status& why);
  // Drops the state of a peer. Requires that no read from this peer is under way.
  void Forget(PeerId peer);

 private:
  struct Bounce {
    Run run;
    std::byte* to;
    std::byte* landing;
    uint32_t slot;
    Arrived arrived;
    bool reading = false;  // True while the inner transport reads the slot.
  };

  void End(uint64_t number, const absl::Status& status);

  DeviceRuntime* const runtime_;
  Transport* const inner_;
  const uint64_t reader_;  // random id that names this object to the owners of pools
  uint64_t last_ = 0;
  std::map<uint64_t, Bounce> bounces_;                  // runs under way, by the number of the run
  std::map<PeerId, std::vector<uint32_t>> free_slots_;  // numbers of the free slots at each peer
  // Pinned memory of all landing buffers, which receive the bytes of reads without a target of
  // their own. Allocated when the first of these buffers is needed.
  std::byte* landings_ = nullptr;
  std::vector<std::byte*> free_landings_;
};

}  // namespace baton
