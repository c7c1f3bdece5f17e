#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/core/answer_so_far.h"
#include "router/core/core_context.h"
#include "router/core/legs.h"
#include "router/core/request.h"

namespace baton {

class Clients;
class Membership;

// What an attempt works with. All of it outlives every attempt.
struct AttemptTools {
  CoreContext& core;
  Membership& membership;
  Legs& legs;
  Clients& clients;
};

// Why an attempt is over, and with that what its request needs next.
struct AttemptEnd {
  enum class Kind {
    kAnswered,  // nothing: the answer is complete, as `answer` says
    kFailed,    // the client gets `status`: another attempt would end in the same way
    // The worker was full before it took the prompt: another worker, or a short wait. (A ticket
    // that a decode worker refuses ends no attempt: it waits for room.)
    kRefused,
    kBroken,    // an attempt with the tokens so far, on other workers where there are some
    kOutgrown,  // the same on any worker, and no failure: longer sequences have another KV
  };
  Kind kind = Kind::kFailed;
  absl::Status status;  // of all but kAnswered
  AnswerEnd answer;
  absl::string_view phase;  // kBroken: what the lost worker was doing
};

// One try at a request: a prefill leg and then, with its ticket, a decode leg; or, colocated, one
// decode leg that computes the prompt too. Made when the request leaves the queue, which opens the
// first leg, and destroyed when the attempt ends. What outlives it stands in Request.
//
// Owned by its request; owns what is listed at the end of this class, and uses its legs, which Legs
// owns. Runs on the core's loop thread. Each function that returns End returns null while the
// attempt goes on. Otherwise it returns how the attempt ended, and the caller has to call Close()
// and destroy it.
//
// Failures: PrefillFailed and DecodeFailed decide whether the attempt goes on (router/README.md has
// the whole table). Tokens that were taken stay in the answer, and the next attempt begins after
// them; a first token that was held back is drawn again. RouterCore decides what follows.
//   prefill leg full before it took the prompt      kRefused
//   colocated leg full before it promised room      kRefused
//   decode leg full                                 the ticket goes to another one, or waits
//   InvalidArgument of either leg                   kFailed
//   decode leg outgrown                             kOutgrown
//   prefill leg broken after decode has shown tokens  goes on: decode holds the KV
//   anything else, silence for too long included    kBroken
class Attempt {
 public:
  using End = std::unique_ptr<AttemptEnd>;

  // The request is not queued any more, and it is bound to the worker's identity.
  Attempt(const AttemptTools& tools, Request* request, Worker& worker, bool colocated);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // A message of the prefill leg, or of the decode leg, which is open.
  End OnPrefill(v1::PrefillEvent event);
  End OnDecode(v1::DecodeEvent event);
  // A leg of this attempt has failed. It is cancelled, unless it has `ended` by itself. A second
  // decode leg may be opened with the same ticket.
  End LegFailed(Leg& leg, absl::Status status, bool ended);
  // Fails legs of silent workers, and offers the ticket again.
  End CheckTimers();

  // Gives the client what it can take, and pauses or resumes the decode leg accordingly.
  void FlushClient();
  // Some decode worker may have room now. Changes the time at which the ticket is offered again.
  void OnRoomFreed() { room_.retry = core_.now; }
  // Cancels the open legs and stops waiting for room. The second call does nothing.
  void Close();

  // When CheckTimers has something to do.
  absl::Time WakeAt() const;
  const AttemptTimes& times() const { return times_; }
  // The decode worker's last word; nothing until it has come.
  const std::optional<v1::DecodeFinished>& finished() const { return finished_; }
  WorkerKey prefill_worker() const { return prefill_worker_; }
  // The ticket waits, and no decode worker is looking at it.
  bool waits_for_room() const { return decode_leg_ == nullptr && room_.since; }

 private:
  // A ticket that no decode worker has promised room for.
  struct RoomWait {
    std::vector<WorkerKey> refused_by;  // since the ticket was last offered to all
    std::optional<absl::Time> since;    // earlier by what earlier attempts have waited
    // No decode worker can pull from the prefill worker since then.
    std::optional<absl::Time> partnerless_since;
    absl::Time retry = absl::InfiniteFuture();
    absl::Duration pause;  // before the next retry
  };

  // Opens a decode leg. Leaves to the caller: the ticket, and to add the action.
  StartDecode OpenDecode(Worker& worker, uint64_t prompt_tokens);
  // Offers the ticket to the best decode worker, or waits for one.
  End TryDecode();
  void CloseLeg(Leg& leg, bool cancel);

  End OnFirstToken(const v1::FirstToken& first);
  End OnPromptTokens(Leg& leg, v1::PromptTokens tokens);
  void OnBegun();  // colocated: the worker begins with the prompt
  End OnFirstColocated();
  End OnPromised();
  End OnTokens(v1::Tokens tokens);
  End OnFinished(v1::DecodeFinished finished);
  End OnOutgrown();
  // Adds a token to the answer. `leg`: where it came from, null if that has ended.
  End TakeToken(Leg* leg, v1::Token token);

  End PrefillFailed(WorkerKey worker, absl::Status status);
  End DecodeFailed(WorkerKey worker, absl::Status status);
  // The leg said something that cannot be right, as the pieces of text say: it fails with DataLoss.
  template <class... Pieces>
  End Lied(Leg& leg, const Pieces&... pieces) {
    return LegFailed(leg, absl::DataLossError(absl::StrCat(pieces...)), /*ended=*/false);
  }
  // The first token may come only after all logprobs of the prompt that were asked for.
  End CheckScored(Leg& leg);
  End Refused(WorkerKey worker, absl::Status status);
  End Broken(absl::Status status, bool lost_decode = false) const;

  CoreContext& core_;
  Membership& membership_;
  WorkerTable& workers_;
  Legs& legs_;
  Clients& clients_;
  Request& request_;
  const bool colocated_;
  const size_t base_;               // tokens of the answer that are computed with the prompt
  const WorkerKey prefill_worker_;  // 0 if colocated
  AttemptTimes times_;
  Leg* prefill_leg_ = nullptr;  // null: not open
  Leg* decode_leg_ = nullptr;
  std::optional<v1::KvTicket> ticket_;
  std::optional<v1::Token> held_first_;  // token 1, until a decode worker has promised room
  bool promised_ = false;
  bool handed_over_ = false;  // decode has sent tokens: it holds the KV
  size_t scored_ = 0;         // tokens of the prompt whose logprobs came in this attempt
  std::optional<v1::DecodeFinished> finished_;
  // Of the decode leg, which is paused: they wait until all of the prompt is scored.
  std::vector<v1::DecodeEvent> early_;
  RoomWait room_;
};

}  // namespace baton
