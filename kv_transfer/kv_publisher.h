#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// The prefill worker's ledger of hand-overs: open -> publishing -> complete -> released | expired.
// It keeps no blocks itself: whoever opened a hand-over holds them until `ended` is called. KV
// thread only.
class KvPublisher {
 public:
  struct Options {
    std::string owner;  // advertised address, goes into tickets
    // How long a complete hand-over is kept without any word from a reader. Each Open note of a
    // reader begins the time anew: readers send one every second while they pull. Where the router
    // waits longer than this for a decode worker with room, the lease ends, and the prompt is
    // computed again.
    absl::Duration lease = absl::Seconds(10);
  };
  // The plane must outlive the publisher.
  static std::unique_ptr<KvPublisher> Create(KvPlane* plane, Options options);
  // Forgets what is open, without a call of `ended`.
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // A new hand-over of `tokens` tokens that will lie in `blocks`. `ended` is called once, from
  // RunOnce of the plane: OK, a reader has taken everything; FailedPrecondition, the lease ran out;
  // Internal, the pool's device failed.
  // It is not called after Abort. When it runs no note will name these blocks again, and their
  // holder may free them: a read still under way finds another generation.
  KvTicket Open(const std::vector<BlockId>& blocks, int tokens,
                std::function<void(absl::Status)> ended);
  // KV of layers [0, layers) of tokens [0, tokens) is in the pool, or will be once the work that
  // `written` recorded has run, and that of all layers of the tokens published before. `tokens` is
  // a multiple of the block length, or all of them; neither goes back. The reader is told when
  // their checksums have been taken, so that no note names what is not there. Should that fail, the
  // hand-over ends with Internal. Unknown ids are ignored: it was aborted.
  void Publish(uint64_t handover_id, int tokens, int layers,
               std::shared_ptr<DeviceEvent> written = nullptr);
  // Everything has been published, and this (at most kMaxPayloadBytes) is what else the reader must
  // know to go on (the first token). Starts the lease. Unknown ids are ignored.
  void Complete(uint64_t handover_id, std::string payload);
  // Nobody wants it any more: a reader is told, the hand-over forgotten. Unknown ids are ignored.
  void Abort(uint64_t handover_id);

  int open_handovers() const { return static_cast<int>(handovers_.size()); }

 private:
  // How far a hand-over has come: all layers of `full_blocks`, `layers` of those beyond.
  struct Front {
    int tokens = 0;
    int layers = 0;
    int full_blocks = 0;
    int partial_blocks = 0;
  };
  struct Handover {
    KvTicket ticket;
    std::function<void(absl::Status)> ended;
    Front published;
    Front shown;  // of it: whose checksums lie in KvMeta
    bool complete = false;
    std::string payload;

    WorkerEpoch reader = 0;  // 0: nobody reads now
    uint32_t attempt = 0;    // the highest seen
    bool attempted = false;
    bool heard = false;  // a word from a reader, or completion, since the last RunOnce
    absl::Time lease_end = absl::InfiniteFuture();
  };

  KvPublisher(KvPlane* plane, Options options) : plane_(plane), options_(std::move(options)) {}
  void OnNote(const KvNote& note);
  void OnOpen(const KvNote& note, Handover* handover);
  void OnRelease(const KvNote& note, uint64_t id, Handover* handover);
  bool RunOnce(absl::Time now, bool drained);
  void AddSlices(const Handover& handover, int first_block, int end_block, int first_layer,
                 int end_layer, std::vector<KvSlice>* slices) const;
  void Show(uint64_t id, const Front& front, const absl::Status& status,
            absl::Span<const KvSlice> slices);
  bool AllShown(const Handover& handover) const;
  void SendState(uint64_t id, const Handover& handover);
  void Refuse(const KvNote& asked, KvNote::Reason reason);
  void TellReader(uint64_t id, const Handover& handover, KvNote::Reason reason);

  KvPlane* const plane_;
  const Options options_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Handover> handovers_;
  struct Ended {
    uint64_t id;
    std::function<void(absl::Status)> call;
    absl::Status status;
  };
  std::deque<Ended> ended_;  // called by the next RunOnce
};

}  // namespace baton
