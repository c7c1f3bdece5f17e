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

// The prefill worker's hand-overs. States of a hand-over: open -> publishing -> complete ->
// released | expired. The publisher does not own blocks: the caller of Open holds them until
// `ended` is called. KV thread only.
class KvPublisher {
 public:
  struct Options {
    std::string owner;  // advertised address, copied into tickets
    // Time for which a complete hand-over is kept without any note from a reader. A reader that
    // pulls sends an Open note every second, and each such note starts the time anew. If the router
    // finds no decode worker with free blocks within this time, the lease ends and the prompt is
    // computed again.
    absl::Duration lease = absl::Seconds(10);
  };
  // The plane must outlive the publisher.
  static std::unique_ptr<KvPublisher> Create(KvPlane* plane, Options options);
  // Drops the open hand-overs without calling `ended`.
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // Opens a hand-over of `tokens` tokens whose KV will lie in `blocks`. `ended` is called once,
  // from RunOnce of the KvPlane, unless Abort comes first. Its status is OK if a reader has pulled
  // everything, FailedPrecondition if the lease ran out, DataLoss if a reader got wrong bytes, or
  // Internal if the pool's device failed.
  // Once `ended` is called, the caller may free `blocks`: no later message to a reader names them.
  // A pull that still reads a freed block finds that the block's generation has changed, and fails.
  // The first `ready_blocks` blocks hold their KV already, because an earlier prompt began with the
  // same tokens; at least one block is not ready. They are published at once. Their checksums are
  // computed only if no hand-over has shown them since the block was handed out.
  KvTicket Open(const std::vector<BlockId>& blocks, int tokens,
                std::function<void(absl::Status)> ended, int ready_blocks = 0);
  // Announces KV to the reader: layers [0, layers) of tokens [0, tokens), and all layers of the
  // tokens published before. The KV is in the pool now, or will be once the work recorded by
  // `written` has run. `tokens` is a multiple of the block length, or all of the hand-over's
  // tokens. `tokens` may not decrease. For the same `tokens`, `layers` may not decrease. The reader
  // gets a note after the checksums of the KV have been computed, so that no note names KV that is
  // not there. If the checksums fail, the hand-over ends with Internal. Ignores unknown ids,
  // because the hand-over may have been aborted.
  void Publish(uint64_t handover_id, int tokens, int layers,
               std::shared_ptr<DeviceEvent> written = nullptr);
  // Marks the hand-over as complete after everything has been published, and starts the lease.
  // `payload`, at most kMaxPayloadBytes, is what the reader needs besides the KV: the first token.
  // Ignores unknown ids.
  void Complete(uint64_t handover_id, std::string payload);
  // Ends a hand-over that is no longer needed: tells its reader and forgets it, without calling
  // `ended`. Returns OK, or the error with which it has already ended if `ended` was not called
  // with it yet. Unknown ids are ignored.
  absl::Status Abort(uint64_t handover_id);

  int open_handovers() const { return static_cast<int>(handovers_.size()); }

 private:
  // Progress of a hand-over: all layers of the first `full_blocks` blocks, and the first `layers`
  // layers of the blocks from `full_blocks` to `partial_blocks`.
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
    Front shown;  // the part of `published` whose checksums are in KvMeta
    bool complete = false;
    std::string payload;

    WorkerEpoch reader = 0;  // 0 if no worker is reading now
    uint32_t attempt = 0;    // the highest attempt seen
    bool attempted = false;
    // True if a reader sent a note, or the hand-over became complete, since the last RunOnce.
    bool heard = false;
    absl::Time lease_end = absl::InfiniteFuture();
  };

  // Layers of a block whose checksums are in KvMeta, while the block has this generation.
  struct Checksummed {
    uint64_t generation = 0;
    int layers = 0;
  };

  KvPublisher(KvPlane* plane, Options options);
  void OnNote(const KvNote& note);
  void OnOpen(const KvNote& note, Handover* handover);
  void OnRelease(const KvNote& note, uint64_t id, Handover* handover);
  bool RunOnce(absl::Time now, bool drained);
  void AddSlices(const Handover& handover, int first_block, int end_block, int first_layer,
                 int end_layer, std::vector<KvSlice>* slices) const;
  void Show(uint64_t id, const Front& front, const absl::Status& status,
            absl::Span<const KvSlice> slices);
  void ShowReady(uint64_t id, Handover* handover, int blocks);
  bool AllShown(const Handover& handover) const;
  void SendState(uint64_t id, const Handover& handover);
  void Refuse(const KvNote& asked, KvNote::Reason reason);
  void TellReader(uint64_t id, const Handover& handover, KvNote::Reason reason);

  KvPlane* const plane_;
  const Options options_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Handover> handovers_;
  std::vector<Checksummed> checksummed_;  // index: block id
  struct Ended {
    uint64_t id;
    std::function<void(absl::Status)> call;
    absl::Status status;
  };
  std::deque<Ended> ended_;  // hand-overs whose `ended` the next RunOnce calls
};

}  // namespace baton
