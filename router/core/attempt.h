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

// The objects that an attempt works with. All of them outlive every attempt.
struct AttemptTools {
  CoreContext& core;
  Membership& membership;
  Legs& legs;
  Clients& clients;
};

// Reason for which an attempt is over. It decides what happens to the request next.
struct AttemptEnd {
  enum class Kind {
    kAnswered,  // The answer is complete, as `answer` says.
    kFailed,    // The client gets `status`, because another attempt would end in the same way.
    // The worker was full before it took the prompt: the request tries another worker, or waits
    // briefly. (A decode worker that refuses a ticket ends no attempt: the ticket waits.)
    kRefused,
    kBroken,  // A worker was lost. Retry with the tokens so far, on other workers if there are any.
    kOutgrown,  // No failure: the sequence needs another KV to grow. Retry on any worker.
  };
  Kind kind = Kind::kFailed;
  absl::Status status;  // Set for all kinds but kAnswered.
  AnswerEnd answer;
  absl::string_view phase;  // For kBroken: what the lost worker was doing.
};

// One try at a request. It has a prefill leg and then a decode leg that gets the ticket; or,
// colocated, one decode leg that computes the prompt too. It is created when the request leaves the
// queue, which opens the first leg, and destroyed when the attempt ends. State that outlives the
// attempt is in Request.
//
// Owned by its request. Owns the members at the end of this class; Legs owns the legs. Core's loop
// thread only. A function that returns End returns null while the attempt goes on. Otherwise it
// returns how the attempt ended, and the caller has to call Close() and destroy the attempt.
//
// Failures: PrefillFailed and DecodeFailed decide whether the attempt goes on (router/README.md has
// the whole table). Tokens that were taken stay in the answer, and the next attempt begins after
// them. A first token that was held back is sampled again. RouterCore decides what follows.
//   prefill leg full before it took the prompt        kRefused
//   colocated leg full before it reserved blocks      kRefused
//   decode leg full                                   the ticket goes to another one, or waits
//   InvalidArgument of either leg                     kFailed
//   decode leg outgrown                               kOutgrown
//   prefill leg broken after decode has sent tokens   goes on, because decode holds the KV
//   anything else, too long a silence included        kBroken
class Attempt {
 public:
  using End = std::unique_ptr<AttemptEnd>;

  // Opens the first leg at `worker`. The request has left the queue and is bound to the identity of
  // the worker. The request outlives the attempt.
  Attempt(const AttemptTools& tools, Request* request, Worker& worker, bool colocated);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Takes a message of the prefill leg, or of the decode leg. That leg must be open.
  End OnPrefill(v1::PrefillEvent event);
  End OnDecode(v1::DecodeEvent event);
  // Handles the failure of a leg of this attempt. Cancels the leg, unless it has `ended` by itself.
  // May open another decode leg with the same ticket.
  End LegFailed(Leg& leg, absl::Status status, bool ended);
  // Fails the legs of silent workers, and offers a waiting ticket again when that is due.
  End CheckTimers();

  // Sends the client what it can take, and pauses or resumes reading the decode leg accordingly.
  void FlushClient();
  // Makes CheckTimers offer the ticket again at once, because a decode worker may have room now.
  void OnRoomFreed() { room_.retry = core_.now; }
  // Cancels the open legs and stops waiting for room. A second call does nothing.
  void Close();

  // Time at which CheckTimers has something to do.
  absl::Time WakeAt() const;
  // Times at which the phases of this attempt began.
  const AttemptTimes& times() const { return times_; }
  // The decode worker's last message; nothing until it has come.
  const std::optional<v1::DecodeFinished>& finished() const { return finished_; }
  // Worker that computes the prompt; 0 if colocated.
  WorkerKey prefill_worker() const { return prefill_worker_; }
  // True if the ticket waits and no decode worker is considering it.
  bool waits_for_room() const { return decode_leg_ == nullptr && room_.since; }

 private:
  // The wait of a ticket for a decode worker that reserves blocks for it.
  struct RoomWait {
    std::vector<WorkerKey> refused_by;  // Workers that refused it in this round of offers.
    // Begin of the wait, moved back by the waits of earlier attempts.
    std::optional<absl::Time> since;
    // Since this time no decode worker has been able to pull from the prefill worker.
    std::optional<absl::Time> partnerless_since;
    absl::Time retry = absl::InfiniteFuture();
    absl::Duration pause;  // Pause before the next retry.
  };

  // Opens a decode leg. The caller fills in the ticket, if there is one, and adds the action.
  StartDecode OpenDecode(Worker& worker, uint64_t prompt_tokens);
  // Offers the ticket to the best decode worker, or waits until there is one.
  End TryDecode();
  void CloseLeg(Leg& leg, bool cancel);

  End OnFirstToken(const v1::FirstToken& first);
  End OnPromptTokens(Leg& leg, v1::PromptTokens tokens);
  void OnBegun();  // Colocated only: the worker begins with the prompt.
  End OnFirstColocated();
  End OnReserved();
  End OnTokens(v1::Tokens tokens);
  End OnFinished(v1::DecodeFinished finished);
  End OnOutgrown();
  // Adds a token to the answer. `leg` is the leg that sent it, or null if that leg has ended.
  End TakeToken(Leg* leg, v1::Token token);

  End PrefillFailed(WorkerKey worker, absl::Status status);
  End DecodeFailed(WorkerKey worker, absl::Status status);
  // Fails the leg with DataLoss, because the worker sent something that cannot be right. The pieces
  // of text make up the message.
  template <class... Pieces>
  End Lied(Leg& leg, const Pieces&... pieces) {
    return LegFailed(leg, absl::DataLossError(absl::StrCat(pieces...)), /*ended=*/false);
  }
  // Fails the leg if the first token comes before all logprobs of the prompt that the client asked
  // for.
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
  const size_t base_;               // Tokens of the answer that are computed with the prompt.
  const WorkerKey prefill_worker_;  // 0 if colocated.
  AttemptTimes times_;
  Leg* prefill_leg_ = nullptr;  // Null while it is not open.
  Leg* decode_leg_ = nullptr;
  std::optional<v1::KvTicket> ticket_;
  std::optional<v1::Token> held_first_;  // Token 1, until a decode worker has reserved blocks.
  bool reserved_ = false;
  bool handed_over_ = false;  // Decode has sent tokens, so it holds the KV.
  size_t scored_ = 0;         // Prompt tokens whose logprobs came in this attempt.
  std::optional<v1::DecodeFinished> finished_;
  // Events of the decode leg that came before the whole prompt was scored. They wait until it is,
  // and the leg is paused meanwhile.
  std::vector<v1::DecodeEvent> early_;
  RoomWait room_;
};

}  // namespace baton
