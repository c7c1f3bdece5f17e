#pragma once

#include <cstdint>
#include <functional>
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
  // Both must outlive the publisher.
  static std::unique_ptr<KvPublisher> Create(KvPlane* plane, Options options);
  virtual ~KvPublisher() = default;

  // A new hand-over of `tokens` tokens that will lie in `blocks`. `ended` is called once: OK, a
  // reader has taken everything; FailedPrecondition, the lease ran out. It is not called after
  // Abort. When it runs no note will name these blocks again, and their holder may free them: a
  // read still under way finds another generation.
  virtual KvTicket Open(const std::vector<BlockId>& blocks, int tokens,
                        std::function<void(absl::Status)> ended) = 0;
  // KV of layers [0, layers) of tokens [0, tokens) is in the pool, and that of all layers of the
  // tokens published before. `tokens` is a multiple of the block length, or all of them. Takes
  // checksums and tells the reader.
  virtual void Publish(uint64_t handover_id, int tokens, int layers) = 0;
  // Everything has been published, and this is what else the reader must know to go on (the first
  // token).
  virtual void Complete(uint64_t handover_id, std::string payload) = 0;
  // Nobody wants it any more: a reader is told, the hand-over forgotten. Unknown ids are ignored.
  virtual void Abort(uint64_t handover_id) = 0;

  virtual int open_handovers() const = 0;
};

}  // namespace baton
