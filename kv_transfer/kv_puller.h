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

struct PullResult {
  // OK: every slice arrived, and generations and checksums read after the data are right.
  // FailedPrecondition: the owner knows no such hand-over (any more), or layout or numerics differ.
  // Unavailable: no proven link to the owner, or it was lost. DataLoss: generation or checksum
  // wrong. DeadlineExceeded: nothing arrived for too long. Cancelled: by Cancel().
  absl::Status status;
  std::string payload;     // what the owner passed to Complete
  absl::Duration hidden;   // pulling before the owner had completed
  absl::Duration exposed;  // from the owner's completion note until all was checked
  uint64_t bytes = 0;
  std::string link;  // shm, tcp, ...
};

// The decode worker's reader of other workers' KV. KV thread only.
class KvPuller {
 public:
  struct Options {
    absl::Duration stall = absl::Seconds(4);  // without a note or a byte from the owner
    size_t in_flight_bytes = 16 << 20;  // bound on reads posted and not finished, over all pulls
  };
  static std::unique_ptr<KvPuller> Create(KvPlane* plane, Options options);
  virtual ~KvPuller() = default;

  // Pulls the ticket's KV into `blocks` (as many as the ticket has), slice by slice as they become
  // ready. `done` is called exactly once, from RunOnce or Cancel's later consequences, never from
  // inside Start; when it runs, no operation into `blocks` is outstanding, so they may go back to
  // their pool. `attempt` numbers the tries at one ticket: a release ends only its own.
  virtual uint64_t Start(const KvTicket& ticket, uint32_t attempt,
                         const std::vector<BlockId>& blocks,
                         std::function<void(PullResult)> done) = 0;
  // Ends a pull early; `done` still comes. The lease is left to the owner. Unknown ids are ignored.
  virtual void Cancel(uint64_t pull_id) = 0;

  virtual int running_pulls() const = 0;
};

}  // namespace baton
