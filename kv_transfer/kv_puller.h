#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_pull.h"

namespace baton {

struct PullResult {
  // OK: every slice arrived, and generations and checksums read after the data are right.
  // InvalidArgument: a ticket that can never work. FailedPrecondition: the owner knows no such
  // hand-over (any more), or layout or numerics differ. Unavailable: no proven link to the owner,
  // or it was lost. DataLoss: generation or checksum wrong. DeadlineExceeded: nothing arrived for
  // too long. Cancelled: by Cancel().
  absl::Status status;
  std::string payload;    // what the owner passed to Complete
  absl::Duration hidden;  // pulling before the owner had completed
  // From the owner's completion note until all was checked; of a hand-over that was complete
  // before, from the start of the pull.
  absl::Duration exposed;
  uint64_t bytes = 0;
  std::string link;  // shm, tcp, ...
};

// The decode worker's reader of other workers' KV. KV thread only.
class KvPuller {
 public:
  struct Options {
    absl::Duration stall = absl::Seconds(4);  // without a note or a byte from the owner
    size_t in_flight_bytes = 16 << 20;  // bound on reads posted and not finished, over all pulls
    size_t piece_bytes = 1 << 20;       // longest read, unless one slice is longer
  };
  // The plane must outlive the puller.
  static std::unique_ptr<KvPuller> Create(KvPlane* plane, Options options);
  // Cancels every pull, by force, and calls its `done`.
  ~KvPuller();
  KvPuller(const KvPuller&) = delete;
  KvPuller& operator=(const KvPuller&) = delete;

  // Pulls the ticket's KV into `blocks` (as many as the ticket has), slice by slice as they become
  // ready. `done` is called exactly once, from the plane's RunOnce, never from inside Start or
  // Cancel; when it runs, no operation into `blocks` is outstanding, so they may go back to their
  // pool. `attempt` numbers the tries at one ticket, upwards: a later one takes the hand-over over,
  // and a release ends only its own. A link that is still being proven is waited for.
  uint64_t Start(const KvTicket& ticket, uint32_t attempt, const std::vector<BlockId>& blocks,
                 std::function<void(PullResult)> done);
  // Ends a pull early; `done` still comes. The lease is left to the owner. Unknown ids are ignored.
  void Cancel(uint64_t pull_id);

  int running_pulls() const { return static_cast<int>(pulls_.size()); }

 private:
  // waiting (for the link) -> pulling -> validating -> ended, from each to ended; an ended one goes
  // when its last read has been reported.
  enum class State { kWaiting, kPulling, kValidating, kEnded };
  struct Running {
    Running(const KvTicket& ticket, const std::vector<BlockId>& blocks, const KvLayout& layout)
        : pull(ticket, blocks, layout) {}

    uint64_t id = 0;
    KvPull pull;
    uint32_t attempt = 0;
    std::function<void(PullResult)> done;
    State state = State::kWaiting;
    PullResult result;

    uint64_t incarnation = 0;  // of the link it reads over
    int reads = 0;             // posted, not reported, or landed with checksums under way
    absl::Status read_error;   // of the first of them that failed

    bool alive = true;  // a note or a byte since the last RunOnce
    absl::Time last_life;
    absl::Time next_open;
    bool landed = false;     // a read was reported since the last RunOnce
    absl::Time reads_since;  // the last such report, or the first post after there were none
    absl::Time unanswered_since = absl::InfiniteFuture();  // the first open after the last life
    absl::Time started = absl::InfinitePast();
    bool answered = false;  // the owner has said how far it is
    absl::Time completed = absl::InfinitePast();
    absl::Time ended_at;
  };
  // An OK that the owner has not confirmed: said again, for its lease would keep the blocks.
  struct Release {
    WorkerEpoch owner = 0;
    KvNote note;
    absl::Time next;
    int tries = 0;
  };

  KvPuller(KvPlane* plane, Options options) : plane_(plane), options_(options) {}
  void OnNote(const KvNote& note);
  bool RunOnce(absl::Time now, bool drained);
  void Move(Running* running, bool drained);
  void Begin(Running* running);
  bool LinkStands(const Running& running) const;
  void SendOpen(Running* running);
  void PostValidation(Running* running);
  void End(Running* running, absl::Status status);
  bool PostPieces();
  bool PostPiece(Running* running);
  void TakeChecksums(Running* running, const KvPull::Piece& piece);
  void SendReleases();
  KvNote NoteFor(const Running& running, KvNote::Type type) const;
  absl::Status Check(const KvTicket& ticket, size_t blocks) const;

  KvPlane* const plane_;
  const Options options_;
  absl::Time now_ = absl::InfinitePast();
  absl::Time last_turn_ = absl::InfinitePast();
  uint64_t last_id_ = 0;
  uint64_t served_ = 0;  // the pull that last posted a piece
  size_t in_flight_ = 0;
  std::map<uint64_t, std::unique_ptr<Running>> pulls_;
  std::map<std::pair<uint64_t, uint32_t>, Release> releases_;  // by random half of secret, attempt
};

}  // namespace baton
