#include "kv_transfer/kv_puller.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

// Interval at which the kOpen note, which asks the owner for its KV, is sent again while the owner
// has not answered.
constexpr absl::Duration kAskAgain = absl::Milliseconds(200);
// Interval between notes that renew the lease of the KV, once its owner has answered.
constexpr absl::Duration kRenewEvery = absl::Seconds(1);
constexpr int kReleaseTries = 10;

// Returns a key that is unique among the hand-overs of all owners: the first half of the random
// secret.
uint64_t SecretKey(const std::string& secret) {
  uint64_t key = 0;
  std::memcpy(&key, secret.data(), std::min(secret.size(), sizeof(key)));
  return key;
}

}  // namespace

std::unique_ptr<KvPuller> KvPuller::Create(KvPlane* plane, Options options) {
  std::unique_ptr<KvPuller> puller(new KvPuller(plane, options));
  plane->SetPuller({[self = puller.get()](const KvNote& note) { self->OnNote(note); },
                    [self = puller.get()](absl::Time now, bool drained) {
                      return self->RunOnce(now, drained);
                    }});
  return puller;
}

KvPuller::~KvPuller() {
  plane_->SetPuller({});
  for (auto& [id, running] : pulls_) {
    if (running->reads > 0)
      plane_->Drop(running->pull.ticket().owner_epoch, "this worker is shutting down");
  }
  plane_->checksums()->Finish();
  for (auto& [id, running] : pulls_) {
    BATON_CHECK(running->reads == 0) << running->reads;
    if (running->state != State::kEnded) {
      running->result.status = absl::CancelledError("this worker is shutting down");
    }
    running->done(std::move(running->result));
  }
}

absl::Status KvPuller::Check(const KvTicket& ticket, size_t blocks) const {
  const KvPlane::Options& plane = plane_->options();
  if (ticket.layout_fingerprint != plane.layout.Fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat("the ticket's KV layout is ",
                                                      ticket.layout_fingerprint, ", this worker's ",
                                                      plane.layout.Fingerprint()));
  }
  if (ticket.numerics_id != plane.numerics_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ticket's numerics are ", ticket.numerics_id, ", this worker's ", plane.numerics_id));
  }
  if (ticket.secret.size() != kSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ticket's secret has ", ticket.secret.size(), " bytes"));
  }
  if (ticket.tokens <= 0 || ticket.blocks.empty() ||
      (ticket.tokens - 1) / plane.layout.block_tokens + 1 !=
          static_cast<int64_t>(ticket.blocks.size()) ||
      ticket.generations.size() != ticket.blocks.size() || blocks != ticket.blocks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ticket of ", ticket.tokens, " tokens, ", ticket.blocks.size(),
                     " blocks and ", ticket.generations.size(), " generations, into ", blocks,
                     " blocks of ", plane.layout.block_tokens, " tokens"));
  }
  return absl::OkStatus();
}

uint64_t KvPuller::Start(const KvTicket& ticket, uint32_t attempt,
                         const std::vector<BlockId>& blocks, std::function<void(PullResult)> done,
                         int held_blocks) {
  for (const BlockId block : blocks) {
    BATON_CHECK(block >= 0 && block < plane_->options().blocks) << block;
  }
  BATON_CHECK(held_blocks >= 0 &&
              held_blocks < static_cast<int>(std::max<size_t>(1, blocks.size())))
      << held_blocks << " of " << blocks.size() << " blocks are held";
  auto running = std::make_unique<Running>(ticket, blocks, plane_->options().layout, held_blocks);
  running->id = ++last_id_;
  running->attempt = attempt;
  running->done = std::move(done);
  const absl::Status status = Check(ticket, blocks.size());
  if (!status.ok()) End(running.get(), status);
  pulls_[last_id_] = std::move(running);
  return last_id_;
}

void KvPuller::Cancel(uint64_t pull_id) {
  const auto it = pulls_.find(pull_id);
  if (it == pulls_.end()) return;
  End(it->second.get(), absl::CancelledError("the pull was cancelled"));
}

KvNote KvPuller::NoteFor(const Running& running, KvNote::Type type) const {
  KvNote note;
  note.type = type;
  note.handover_id = running.pull.ticket().handover_id;
  note.secret = running.pull.ticket().secret;
  note.attempt = running.attempt;
  return note;
}

// Sets the result of a pull. The pull's `done` is called after the reads that are still under way.
void KvPuller::End(Running* running, absl::Status status) {
  if (running->state == State::kEnded) return;
  const KvTicket& ticket = running->pull.ticket();
  const bool opened = running->state != State::kWaiting;
  running->state = State::kEnded;
  running->ended_at = now_;
  if (opened && plane_->StateOf(ticket.owner_epoch) == KvPlane::LinkState::kUp) {
    KvNote release = NoteFor(*running, KvNote::Type::kRelease);
    const bool corrupt = absl::IsDataLoss(status);
    release.outcome = status.ok() ? KvNote::Outcome::kTaken
                      : corrupt   ? KvNote::Outcome::kCorrupt
                                  : KvNote::Outcome::kGaveUp;
    plane_->Send(ticket.owner_epoch, release);
    if (status.ok() || corrupt) {
      releases_[{SecretKey(ticket.secret), running->attempt}] = {ticket.owner_epoch, release,
                                                                 now_ + kAskAgain, 1};
    }
  }
  if (!status.ok() && !absl::IsCancelled(status)) {
    status =
        absl::Status(status.code(), absl::StrCat("pull of hand-over ", ticket.handover_id, " from ",
                                                 ticket.owner, ": ", status.message()));
  }
  running->result.status = std::move(status);
}

void KvPuller::OnNote(const KvNote& note) {
  // KvPuller::RunOnce has not run in this turn of the loop, so `now_` may be from before a long
  // wait.
  now_ = plane_->now();
  if (note.type == KvNote::Type::kReleased || note.type == KvNote::Type::kRefused) {
    releases_.erase({SecretKey(note.secret), note.attempt});
    if (note.type == KvNote::Type::kReleased) return;
  }
  for (auto& [id, running] : pulls_) {
    const KvTicket& ticket = running->pull.ticket();
    if (ticket.handover_id != note.handover_id || ticket.owner_epoch != note.from ||
        running->attempt != note.attempt || ticket.secret != note.secret) {
      continue;
    }
    if (running->state == State::kEnded || running->state == State::kWaiting) return;
    running->alive = true;
    running->next_open = now_ + std::min(kRenewEvery, options_.stall / 4);
    if (note.type == KvNote::Type::kRefused) {
      End(running.get(),
          absl::FailedPreconditionError(note.reason == KvNote::Reason::kUnknown
                                            ? "the owner does not have this hand-over"
                                        : note.reason == KvNote::Reason::kSuperseded
                                            ? "a later attempt has replaced this hand-over"
                                            : "the owner has given up this hand-over"));
      return;
    }
    const bool was_complete = running->pull.complete();
    if (!running->pull.Absorb(note)) {
      plane_->CountMalformed();
      return;
    }
    const bool first = !std::exchange(running->answered, true);
    if (!was_complete && running->pull.complete())
      running->completed = first ? running->started : now_;
    return;
  }
}

void KvPuller::Begin(Running* running) {
  const KvTicket& ticket = running->pull.ticket();
  const KvPlane::LinkState link = plane_->StateOf(ticket.owner_epoch);
  if (link == KvPlane::LinkState::kUnknown || link == KvPlane::LinkState::kDown) {
    End(running,
        absl::FailedPreconditionError(link == KvPlane::LinkState::kDown
                                          ? "the link to the owner is down"
                                          : "the owner is not one of this worker's peers"));
    return;
  }
  if (running->started == absl::InfinitePast()) running->started = now_;
  if (link == KvPlane::LinkState::kProving) {
    if (now_ - running->started >= options_.stall) {
      End(running, absl::FailedPreconditionError("the link to the owner is not proven yet"));
    }
    return;
  }
  const uint64_t blocks = plane_->BlocksOf(ticket.owner_epoch);
  for (const BlockId block : ticket.blocks) {
    if (block >= 0 && static_cast<uint64_t>(block) < blocks) continue;
    End(running, absl::InvalidArgumentError(
                     absl::StrCat("block ", block, " of a pool of ", blocks, " blocks")));
    return;
  }
  running->state = State::kPulling;
  running->incarnation = plane_->IncarnationOf(ticket.owner_epoch);
  running->result.link = plane_->LinkOf(ticket.owner_epoch);
  running->alive = true;
  SendOpen(running);
}

bool KvPuller::LinkStands(const Running& running) const {
  return plane_->IncarnationOf(running.pull.ticket().owner_epoch) == running.incarnation;
}

void KvPuller::SendOpen(Running* running) {
  plane_->Send(running->pull.ticket().owner_epoch, NoteFor(*running, KvNote::Type::kOpen));
  running->next_open = now_ + std::min(kAskAgain, options_.stall / 8);
  running->unanswered_since = std::min(running->unanswered_since, now_);
}

void KvPuller::PostValidation(Running* running) {
  running->state = State::kValidating;
  const WorkerEpoch owner = running->pull.ticket().owner_epoch;
  KvMeta meta = plane_->meta();
  meta.blocks = plane_->BlocksOf(owner);
  running->reads_since = now_;
  for (const KvPull::MetaRead& read : running->pull.MetaReads(meta)) {
    ++running->reads;
    in_flight_ += read.bytes;
    plane_->ReadMeta(owner, read.offset, reinterpret_cast<std::byte*>(read.to), read.bytes,
                     [this, running, bytes = read.bytes](absl::Status status) {
                       --running->reads;
                       in_flight_ -= bytes;
                       running->alive = running->landed = true;
                       if (running->read_error.ok()) running->read_error = std::move(status);
                     });
  }
}

void KvPuller::Move(Running* running, bool drained) {
  if (running->state == State::kWaiting) Begin(running);
  if (running->state == State::kWaiting) return;
  const KvTicket& ticket = running->pull.ticket();
  if (running->alive) {
    running->alive = false;
    running->last_life = now_;
    running->unanswered_since = absl::InfiniteFuture();
  }
  if (running->landed) {
    running->landed = false;
    running->reads_since = now_;
  }
  if (running->state == State::kEnded) {
    // A read that is still under way may write into the pull's blocks at any time, so the blocks
    // can't be given back.
    if (running->reads > 0 && now_ - running->ended_at >= options_.stall) {
      plane_->Drop(ticket.owner_epoch, absl::StrCat(running->reads, " reads did not end"));
    }
    return;
  }
  if (!LinkStands(*running)) {
    End(running, absl::FailedPreconditionError("the link to the owner was lost"));
    return;
  }
  if (!running->read_error.ok()) {
    const absl::Status error = running->read_error;
    End(running, absl::FailedPreconditionError(absl::StrCat("a read failed: ", error.message())));
    plane_->Drop(ticket.owner_epoch, error.message());
    return;
  }
  if (running->state == State::kPulling && running->pull.complete() && running->pull.all_landed()) {
    PostValidation(running);
    return;
  }
  if (running->state == State::kValidating && running->reads == 0) {
    End(running, running->pull.Verdict());
    return;
  }
  // The owner counts as silent only if it left a kOpen note unanswered and this process has handled
  // all messages in its inbox. Otherwise a pause of this process would look like silence of the
  // owner.
  const bool silent = now_ - running->last_life >= options_.stall &&
                      now_ - running->unanswered_since >= options_.stall / 2;
  const bool stuck = running->reads > 0 && now_ - running->reads_since >= options_.stall;
  if (drained && (silent || stuck)) {
    End(running,
        absl::DeadlineExceededError(absl::StrCat(
            "no ", silent ? "note and no bytes" : "bytes", " arrived in ",
            absl::FormatDuration(options_.stall), ", ", running->reads, " reads under way")));
    if (running->reads > 0 || now_ - plane_->HeardFrom(ticket.owner_epoch) >= options_.stall) {
      plane_->Drop(ticket.owner_epoch, "a pull made no progress");
    }
    return;
  }
  if (now_ >= running->next_open) SendOpen(running);
}

bool KvPuller::PostPiece(Running* running) {
  if (in_flight_ >= options_.in_flight_bytes) return false;
  KvPull::Piece piece;
  const size_t room = options_.in_flight_bytes - in_flight_;
  const size_t slice = plane_->options().layout.LayerBytes();
  if (in_flight_ > 0 && room < slice) return false;
  if (!running->pull.TakePiece(std::min(room, options_.piece_bytes), &piece)) return false;
  if (running->reads++ == 0) running->reads_since = now_;
  in_flight_ += piece.bytes;
  running->result.bytes += piece.bytes;
  plane_->ReadPool(running->pull.ticket().owner_epoch, piece.remote_offset,
                   plane_->pool() + piece.local_offset, piece.bytes,
                   [this, running, piece](absl::Status status) {
                     running->alive = running->landed = true;
                     if (status.ok() && running->state != State::kEnded) {
                       TakeChecksums(running, piece);
                       return;
                     }
                     --running->reads;
                     in_flight_ -= piece.bytes;
                     running->read_error.Update(status);
                   });
  return true;
}

// Computes the checksums of a piece (the blocks and layers of one read) that has arrived. The read
// counts as under way until the checksums are done, because they still read the blocks.
void KvPuller::TakeChecksums(Running* running, const KvPull::Piece& piece) {
  plane_->checksums()->Take(
      running->pull.Slices(piece), nullptr,
      [this, running, piece](const absl::Status& status, absl::Span<const KvSlice> slices) {
        running->alive = running->landed = true;
        --running->reads;
        in_flight_ -= piece.bytes;
        running->read_error.Update(status);
        if (status.ok() && running->state != State::kEnded) running->pull.Landed(piece, slices);
      });
}

// Starts reads of pieces, which are contiguous parts of a pull, in turn for all pulls. Pulls whose
// owner has completed the hand-over come first, because their clients wait for them. The prompts of
// the other pulls are still being computed.
bool KvPuller::PostPieces() {
  bool any = false;
  for (const bool complete : {true, false}) {
    std::vector<Running*> turn;
    for (auto& [id, running] : pulls_) {
      if (running->state != State::kPulling || running->pull.complete() != complete) continue;
      if (!LinkStands(*running)) continue;
      turn.push_back(running.get());
    }
    std::rotate(turn.begin(),
                std::find_if(turn.begin(), turn.end(),
                             [this](const Running* running) { return running->id > served_; }),
                turn.end());
    for (bool posted = true; posted;) {
      posted = false;
      for (Running* running : turn) {
        if (!PostPiece(running)) continue;
        served_ = running->id;
        posted = any = true;
      }
    }
  }
  return any;
}

void KvPuller::SendReleases() {
  for (auto it = releases_.begin(); it != releases_.end();) {
    Release& release = it->second;
    if (plane_->StateOf(release.owner) == KvPlane::LinkState::kUnknown ||
        release.tries >= kReleaseTries) {
      it = releases_.erase(it);
      continue;
    }
    if (now_ >= release.next) {
      release.next = now_ + kAskAgain * release.tries;
      ++release.tries;
      plane_->Send(release.owner, release.note);
    }
    ++it;
  }
}

bool KvPuller::RunOnce(absl::Time now, bool drained) {
  now_ = now;
  // If this process was stopped for a while, bytes may have arrived unseen. So the time of the stop
  // must not count as silence of an owner.
  if (const absl::Duration gap = now - last_turn_; gap > options_.stall / 4) {
    for (auto& [id, running] : pulls_)
      running->reads_since = std::min(now, running->reads_since + gap);
  }
  last_turn_ = now;
  for (auto& [id, running] : pulls_) Move(running.get(), drained);
  const bool posted = PostPieces();
  SendReleases();
  std::vector<std::unique_ptr<Running>> ended;
  for (auto it = pulls_.begin(); it != pulls_.end();) {
    if (it->second->state == State::kEnded && it->second->reads == 0) {
      ended.push_back(std::move(it->second));
      it = pulls_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto& running : ended) {
    PullResult& result = running->result;
    if (result.status.ok()) {
      result.payload = running->pull.payload();
      result.hidden = std::max(absl::ZeroDuration(), running->completed - running->started);
      result.exposed = now - running->completed;
    }
    running->done(std::move(result));
  }
  return posted || !ended.empty();
}

}  // namespace baton
