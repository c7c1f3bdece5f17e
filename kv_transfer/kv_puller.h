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
  // OK: every slice arrived, and the generations and checksums read after the data are right.
  // InvalidArgument: the ticket contradicts itself or `blocks`, so it can never work.
  // FailedPrecondition: the owner does not know the hand-over (any more), or layout or numerics
  // differ. Or there is no proven link to the owner, or it was lost. (An RPC also ends with
  // Unavailable if its worker is gone. With this code, the router blames neither worker.)
  // DataLoss: a generation or checksum is wrong.
  // DeadlineExceeded: nothing arrived for too long.
  // Cancelled: Cancel() was called.
  absl::Status status;
  std::string payload;    // the payload that the owner passed to Complete
  absl::Duration hidden;  // time spent pulling before the owner completed the hand-over
  // Time from the owner's message that the hand-over is complete until everything was checked. If
  // the hand-over was complete before the pull started, the time counts from the start of the pull.
  absl::Duration exposed;
  uint64_t bytes = 0;
  std::string link;  // as Transport::Link returns it: shm, tcp, ...
};

// Pulls other workers' KV into this decode worker's pool. KV thread only.
class KvPuller {
 public:
  struct Options {
    absl::Duration stall = absl::Seconds(4);  // max time without a note or a byte from the owner
    size_t in_flight_bytes = 16 << 20;        // max bytes of unfinished reads, over all pulls
    size_t piece_bytes = 1 << 20;             // longest read, unless one slice is longer
  };
  // The plane must outlive the puller.
  static std::unique_ptr<KvPuller> Create(KvPlane* plane, Options options);
  // Cancels every pull by force, and calls its `done`.
  ~KvPuller();
  KvPuller(const KvPuller&) = delete;
  KvPuller& operator=(const KvPuller&) = delete;

  // Pulls the ticket's KV from its owner, a prefill worker, into `blocks` (as many as the ticket
  // has), slice by slice as the slices become ready. If the link to the owner is not proven yet,
  // the pull waits for the proof. Returns an id for Cancel. Aborts if a block is not in this
  // worker's pool.
  // The first `held_blocks` of `blocks` hold the KV of the same tokens already. They are neither
  // read nor written, and at least one block is pulled.
  // Calls `done` exactly once, from the plane's RunOnce, never from inside Start or Cancel. At that
  // time no read into `blocks` is under way, so the blocks may go back to their pool.
  // `attempt` numbers the attempts at one ticket, upwards. The owner serves only the latest
  // attempt; an earlier one then fails. A release ends only the attempt that sent it.
  uint64_t Start(const KvTicket& ticket, uint32_t attempt, const std::vector<BlockId>& blocks,
                 std::function<void(PullResult)> done, int held_blocks = 0);
  // Ends a pull early; `done` is still called, later, with Cancelled unless the pull already has
  // another result. The owner keeps the hand-over until its lease ends. Ids that are unknown, or
  // whose pull has ended, are ignored.
  void Cancel(uint64_t pull_id);

  int running_pulls() const { return static_cast<int>(pulls_.size()); }

 private:
  // States in order: waiting for the link -> pulling -> validating -> ended. Every other state may
  // also go directly to ended. An ended pull is removed when its last read has ended.
  enum class State { kWaiting, kPulling, kValidating, kEnded };
  struct Running {
    Running(const KvTicket& ticket, const std::vector<BlockId>& blocks, const KvLayout& layout,
            int held_blocks)
        : pull(ticket, blocks, layout, held_blocks) {}

    uint64_t id = 0;
    KvPull pull;
    uint32_t attempt = 0;
    std::function<void(PullResult)> done;
    State state = State::kWaiting;
    PullResult result;

    uint64_t incarnation = 0;  // incarnation of the link over which the pull reads
    int reads = 0;             // reads that are under way, or whose checksums are being computed
    absl::Status read_error;   // the first error of a read

    bool alive = true;  // True if a note or a byte has arrived since the last RunOnce.
    absl::Time last_life;
    absl::Time next_open;
    bool landed = false;  // True if a read has ended since the last RunOnce.
    // Start of the present wait for a read to end. Set when a read ends, and when a read begins
    // while no other is under way.
    absl::Time reads_since;
    // Time of the first kOpen note (the reader's request to the owner) after `last_life`, the
    // owner's last sign of life.
    absl::Time unanswered_since = absl::InfiniteFuture();
    absl::Time started = absl::InfinitePast();
    bool answered = false;  // True once the owner has answered with a state.
    absl::Time completed = absl::InfinitePast();
    absl::Time ended_at;
  };
  // A kRelease note, with which the reader tells the owner that it has all KV, or that the KV is
  // corrupt. The note is repeated until the owner confirms it, because without it the owner keeps
  // the blocks for the whole lease, and may give corrupt ones to other readers.
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
  uint64_t served_ = 0;  // id of the pull that last began to read a piece
  size_t in_flight_ = 0;
  std::map<uint64_t, std::unique_ptr<Running>> pulls_;
  // Each key has two numbers: SecretKey() of the hand-over's secret, and the number of the attempt.
  std::map<std::pair<uint64_t, uint32_t>, Release> releases_;
};

}  // namespace baton
