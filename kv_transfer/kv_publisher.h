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
    std::string owner;                         // advertised address, goes into tickets
    absl::Duration lease = absl::Seconds(10);  // without any word from a reader, once complete
  };
  // The plane must outlive the publisher.
  static std::unique_ptr<KvPublisher> Create(KvPlane* plane, Options options);
  // Forgets what is open, without a call of `ended`.
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // A new hand-over of `tokens` tokens that will lie in `blocks`. `ended` is called once, from
  // RunOnce of the plane: OK, a reader has taken everything; FailedPrecondition, the lease ran out.
  // It is not called after Abort. When it runs no note will name these blocks again, and their
  // holder may free them: a read still under way finds another generation.
  KvTicket Open(const std::vector<BlockId>& blocks, int tokens,
                std::function<void(absl::Status)> ended);
  // KV of layers [0, layers) of tokens [0, tokens) is in the pool, and that of all layers of the
  // tokens published before. `tokens` is a multiple of the block length, or all of them; neither
  // goes back. Takes checksums and tells the reader. Unknown ids are ignored: it was aborted.
  void Publish(uint64_t handover_id, int tokens, int layers);
  // Everything has been published, and this (at most kMaxPayloadBytes) is what else the reader must
  // know to go on (the first token). Starts the lease. Unknown ids are ignored.
  void Complete(uint64_t handover_id, std::string payload);
  // Nobody wants it any more: a reader is told, the hand-over forgotten. Unknown ids are ignored.
  void Abort(uint64_t handover_id);

  int open_handovers() const { return static_cast<int>(handovers_.size()); }

 private:
  struct Handover {
    KvTicket ticket;
    std::function<void(absl::Status)> ended;
    int tokens = 0;  // published, of which
    int layers = 0;  // layers beyond `full_blocks`
    int full_blocks = 0;
    int partial_blocks = 0;
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
  void TakeChecksums(const Handover& handover, int first_block, int end_block, int first_layer,
                     int end_layer);
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
