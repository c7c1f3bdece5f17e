#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/core/answer_so_far.h"
#include "router/core/core_context.h"
#include "router/core/legs.h"
#include "router/core/request.h"
#include "router/core/request_queue.h"

namespace baton {

class Clients;
class Membership;

// The objects that an attempt works with. All of them outlive every attempt.
struct AttemptTools {
  CoreContext& core;
  Membership& membership;
  Legs& legs;
  Clients& clients;
};

// Reason for which an attempt is over. The reason decides what happens to the request next.
struct AttemptEnd {
  enum class Kind {
    kAnswered,  // The answer is complete, as `answer` says.
    kFailed,    // The client gets `status`, because another attempt would end in the same way.
    // The worker was full before it took the prompt. The request tries another worker, or waits
    // briefly. (If a decode worker refuses a ticket, the attempt does not end: the ticket waits.)
    kRefused,
    kBroken,  // A worker was lost. Retry with the tokens so far, on other workers if there are any.
    // Not a failure: the sequence has become too long for the rotary table of its KV. Retry on any
    // worker.
    kOutgrown,
  };
  Kind kind = Kind::kFailed;
  absl::Status status;  // Set for all kinds but kAnswered.
  AnswerEnd answer;
  absl::string_view phase;  // Set for kBroken: what the lost worker was doing.
  // The RPC that failed, and its worker; 0 if the attempt ended for another reason.
  LegKey leg = 0;
  WorkerKey worker = 0;
  // The KV was on its way from one worker to another when the RPC failed.
  bool in_transit = false;
  // The worker at the other end of the KV's way, if `in_transit`; 0 if none was chosen yet. If it
  // has died, this is why the RPC failed.
  WorkerKey partner = 0;
  // The worker sent something that cannot be right, whatever KV it has.
  bool lied = false;
};

// One numbered attempt at a request. It has legs, which are RPCs to workers: a prefill leg and then
// a decode leg that gets the ticket. A colocated attempt has only a decode leg, whose worker
// computes the prompt too. An attempt is created when the request leaves the queue, and opens its
// first leg. State that outlives the attempt is in Request.
//
// Owned by its request. Owns the members at the end of this class; the class Legs owns the legs.
// Core's loop thread only. A function that returns End returns null while the attempt goes on.
// Otherwise it returns how the attempt ended, and the caller has to call Close() and destroy the
// attempt.
//
// Failures: PrefillFailed and DecodeFailed decide whether the attempt goes on (router/README.md has
// the whole table). Tokens that were taken stay in the answer, and the next attempt begins after
// them. A first token that was held back is sampled again. RouterCore decides what follows.
//   prefill leg full before it took the prompt        kRefused
//   colocated leg full before it reserved blocks      kRefused
//   decode leg full                                   the ticket goes to another worker, or waits
//   InvalidArgument of either leg                     kBroken; kFailed if it is the third one
//   decode leg ends with Outgrown                     kOutgrown
//   prefill leg broken after decode has sent tokens   goes on, because decode holds the KV
//   anything else, too long a silence included        kBroken
class Attempt {
 public:
  using End = std::unique_ptr<AttemptEnd>;

  // Opens the first leg of the attempt, which is one RPC to the worker of `place`. The request must
  // have left the queue, must be bound to the identity (model and numerics) of the worker, and must
  // outlive the attempt.
  Attempt(const AttemptTools& tools, Request* request, const Placement& place);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // OnPrefill takes a message of the prefill worker, and OnDecode one of the decode worker. The RPC
  // to that worker must be open.
  End OnPrefill(v1::PrefillEvent event);
  End OnDecode(v1::DecodeEvent event);
  // Handles the failure of `leg`, one of the attempt's RPCs to workers. Cancels the RPC unless it
  // has `ended` by itself. If a decode worker was full, may offer the same ticket to another one.
  End LegFailed(Leg& leg, absl::Status status, bool ended);
  // Fails each leg (RPC to a worker) whose worker has been silent for too long. If the attempt's
  // ticket waits, and the pause after the last offer is over, offers the ticket to a decode worker
  // again.
  End CheckTimers();

  // Sends the client as many messages as it can take. Then pauses or resumes reading from the
  // decode worker, so that tokens that the client can't get yet do not pile up.
  void FlushClient();
  // Makes the next CheckTimers offer the ticket, which names the KV to pull, to a decode worker
  // again. Called when a decode worker may have free blocks.
  void OnRoomFreed() { room_.retry = core_.now; }
  // Tells the workers of this attempt to remove what they have cached of the prompt and of the
  // answer so far. Called if the attempt ended with an error that wrong KV may have caused. A
  // worker that found the error itself has done so already, but not the worker it pulled from.
  void TellWorkersToForget();
  // Cancels the open RPCs to the workers, and ends the wait for a decode worker with free blocks. A
  // second call does nothing.
  void Close();

  // Time at which CheckTimers has something to do.
  absl::Time WakeAt() const;
  // Times at which the phases of this attempt began.
  const AttemptTimes& times() const { return times_; }
  // Last message of the decode worker; not set until the message has come.
  const std::optional<v1::DecodeFinished>& finished() const { return finished_; }
  // Worker that computes the prompt; 0 if colocated.
  WorkerKey prefill_worker() const { return prefill_worker_; }
  // The worker that has sent tokens of the answer; 0 if none has.
  WorkerKey answered_by() const { return handed_over_ ? decode_worker_ : 0; }
  // The legs (RPCs) of the workers that have computed the prompt and that send tokens, and these
  // workers; zeros while the decode worker has sent no token, or if there is no such leg.
  std::array<std::pair<WorkerKey, LegKey>, 2> Answering() const;
  // True while this attempt waits until some decode worker has free blocks for its KV, and no
  // decode worker is being asked now.
  bool waits_for_room() const { return decode_leg_ == nullptr && room_.since; }

 private:
  // State of a ticket that waits until a decode worker reserves blocks for its sequence.
  struct RoomWait {
    std::vector<WorkerKey> refused_by;  // Workers that refused the ticket in this round of offers.
    // Time at which the wait began, set back by the time that earlier attempts waited since a
    // decode worker last reserved blocks. So the option room_wait limits the sum of these waits.
    std::optional<absl::Time> since;
    // Time since which no decode worker has been able to pull from the prefill worker.
    std::optional<absl::Time> partnerless_since;
    absl::Time retry = absl::InfiniteFuture();
    absl::Duration pause;  // Time to wait before the next offer.
  };

  // Opens a decode leg, which is the RPC to a decode worker, and returns the action that starts it.
  // The caller fills in the ticket for KV at a prefill worker, if there is one, and adds the action
  // to the core's actions. `prompt_tokens` is 0 if the worker pulls the KV.
  StartDecode OpenDecode(const ChosenWorker& chosen, uint64_t prompt_tokens);
  // Offers the ticket to the best decode worker. If none can take it, the ticket waits.
  End TryDecode();
  // Time at which the leg, which is an RPC to a worker, will have been silent for too long although
  // its worker reports (leg_silence_limit). InfiniteFuture while it may be silent.
  absl::Time TooSilentAt(const Leg& leg) const;
  void CloseLeg(Leg& leg, bool cancel);

  End OnFirstToken(const v1::FirstToken& first);
  End OnPromptTokens(Leg& leg, v1::PromptTokens tokens);
  End OnCached(Leg& leg, uint32_t tokens);
  void OnBegun();  // For a colocated leg: the worker begins to compute the prompt.
  End OnFirstColocated();
  // Notes that the worker of the leg (an RPC) has computed the prompt.
  void PromptDone(Leg& leg);
  End OnReserved();
  End OnTokens(v1::Tokens tokens);
  End OnFinished(v1::DecodeFinished finished);
  End OnOutgrown();
  void CountToken();  // Counts a new token of the answer.
  // Adds a token to the answer. `leg` is the leg that sent it, or null if a prefill leg that has
  // ended sent it.
  End TakeToken(Leg* leg, v1::Token token);

  // Handles a token that is not the one that the answer already has at this index, which the client
  // may have. Other workers compute that token once more: if it is the answer's, the worker of
  // `leg` was wrong, and the answer goes on. If not, the request fails.
  End Diverged(const Leg* leg, size_t index, TokenId id);
  End PrefillFailed(const Leg& leg, absl::Status status);
  End DecodeFailed(const Leg& leg, absl::Status status);
  // Fails the leg (an RPC to a worker) with DataLoss, because the worker sent something that cannot
  // be right. The error message is `pieces`, joined.
  template <class... Pieces>
  End Lied(Leg& leg, const Pieces&... pieces) {
    return LiedWith(leg, absl::DataLossError(absl::StrCat(pieces...)));
  }
  // The same, with this status.
  End LiedWith(Leg& leg, absl::Status status) {
    lied_ = true;
    return LegFailed(leg, std::move(status), /*ended=*/false);
  }
  // Fails the leg (the RPC to the worker) if the first token comes before all logprobs of the
  // prompt that the client asked for.
  End CheckScored(Leg& leg);
  End Refused(WorkerKey worker, absl::Status status);
  // Ends the attempt because of a token of the prefill worker, whose leg (an RPC) has ended.
  End BrokenByPrefill(absl::Status status) const;
  // `leg` is the RPC that failed, or null.
  End Broken(const Leg* leg, absl::Status status, bool lost_decode = false) const;

  CoreContext& core_;
  Membership& membership_;
  WorkerTable& workers_;
  Legs& legs_;
  Clients& clients_;
  Request& request_;
  const bool colocated_;
  // Answer tokens of earlier attempts whose KV is computed with the prompt: all of them, or those
  // before the disputed one.
  const size_t base_;
  const WorkerKey prefill_worker_;  // Worker that computes the prompt; 0 if colocated.
  LegKey prefill_key_ = 0;          // The prefill leg, also once it has ended; 0 if colocated.
  WorkerKey decode_worker_ = 0;     // Worker of the latest decode leg; 0: none yet.
  AttemptTimes times_;
  Leg* prefill_leg_ = nullptr;  // Null while no prefill leg is open.
  Leg* decode_leg_ = nullptr;
  std::optional<v1::KvTicket> ticket_;
  // First token of this attempt, held until a decode worker has reserved blocks.
  std::optional<v1::Token> held_first_;
  bool reserved_ = false;
  bool closed_ = false;       // Close() was called.
  bool lied_ = false;         // A worker of this attempt sent something that cannot be right.
  bool handed_over_ = false;  // The decode worker has sent tokens, so it holds the KV.
  uint64_t uncached_tokens_;  // Tokens of the prompt that the worker computes, as far as known.
  size_t scored_ = 0;         // Prompt tokens whose logprobs came in this attempt.
  std::optional<v1::DecodeFinished> finished_;
  // Messages of the decode worker that came before the logprobs of the whole prompt. They are kept
  // until these logprobs have come. Meanwhile no further messages are read.
  std::vector<v1::DecodeEvent> early_;
  RoomWait room_;
};

}  // namespace baton
