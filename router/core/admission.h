#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/membership.h"
#include "router/core/request_queue.h"

namespace baton {

// Decides which requests are refused because the workers have too much to do: a request that would
// wait for too long, or whose last token would probably come after its deadline. Too long is longer
// than --max-queue-wait, or than a third of the time that the caller's requests can usually afford
// to wait. (If only the requests' own deadlines limited the queue, it would grow until only the
// shortest requests could still end in time.)
//
// A request is refused before a worker spends anything on it, so that the workers' time goes into
// answers that arrive in time. Each refusal says when to come again (RetryAfter). Only requests
// that have never run are refused. While the speed of the workers is not known (Forecast), only the
// number of waiting requests and the time that a request has waited are limited. Core's loop thread
// only.
class Admission {
 public:
  // The arguments outlive the object.
  Admission(CoreContext* core, Membership* membership, RequestQueue* queue);

  // Must be called when a request arrives. Returns OK if it may wait in the queue, or the error
  // with which it is refused. Checks only predicted times, not the number of waiting requests.
  absl::Status OnArrival(const Request& request);
  // Must be called when a request can get a worker. Returns OK if it may begin, or the error with
  // which it is refused because it can't end before its deadline any more.
  absl::Status OnTurn(const Request& request);
  // Must be called when a request arrives. Returns OK, or the error with which it is refused
  // because of the limits of its caller.
  absl::Status CallerLimitsOf(const Request& request, int answers);
  // Return the error with which a request is refused because the queue is full, or because it has
  // waited for --max-queue-wait. `why` is a part of the error's message.
  absl::Status QueueFull(const Request& request, std::string why);
  absl::Status WaitedTooLong(const Request& request);
  // Returns the error with which a request ends because no worker had room for it for as long as
  // --room-wait. It may have run before. `why` is the error's message.
  absl::Status NoRoom(const Request& request, absl::string_view why);

  // Must be called after each look through the queue (RequestQueue::RunRound). `tickets_wait` is
  // true if a ticket waits for a decode worker with free blocks.
  void NoteRound(bool tickets_wait);

 private:
  // Time for which the predicted wait must be long before the newest requests go first.
  static constexpr absl::Duration kLongFor = absl::Seconds(1);

  // Returns the number of tokens that this caller will have had once `own`, the work of its next
  // requests, is done. Work of other callers that reach this number later is done later.
  uint64_t TurnOf(const Caller& caller, const Work& own) const;
  // Predicted time until a new request of this caller would begin. `own` is the request's work.
  absl::Duration WaitOf(const Caller& caller, const Work& own) const;
  // Work that was given to workers and that they have not done, or the part of it that they do
  // before a prompt with this turn.
  Work AtWorkers() const;
  Work AtWorkersBefore(uint64_t turn) const;
  // The time that the request needs from its beginning to its last token.
  absl::Duration OwnTime(const Request& request);
  // Says why a request is refused.
  enum class Cause { kWorkersAreShort, kCallerWantsTooMuch };
  // Counts the refusal, and returns the error, which tells the client to try again after about
  // `in`. If the workers are short, says that the router is overloaded, and counts this and the
  // refused tokens too.
  absl::Status Refuse(const Request& request, std::string why, absl::Duration in,
                      Cause cause = Cause::kWorkersAreShort);
  // Returns the error `why`, which tells the client to try again after about `in`.
  absl::Status TryAgain(std::string why, absl::Duration in);
  // Returns how long a new request of this caller may wait at present. `slack` is the time that it
  // could wait and still end before its deadline.
  absl::Duration MaxWait(Caller* caller, absl::Duration slack);
  // Sets `settled_`. `computing` is the number of workers that compute prompts.
  void Settle(int computing);
  // Predicts the waits anew, and sets whether the newest requests go first.
  void Update();
  absl::Duration LongerWait() const { return std::max(prompt_wait_, answer_wait_); }
  bool NewestFirst() const { return long_since_ && core_->now - *long_since_ >= kLongFor; }

  CoreContext* const core_;
  Membership* const membership_;
  RequestQueue* const queue_;
  std::mt19937_64 random_;
  // True once the speed of the workers is known and the prompts that were sent before are computed.
  bool settled_ = false;
  // True if decode workers compute the prompts, because the mode says so or there are no others.
  bool decode_only_ = false;
  // Time since which the predicted wait has been longer than half of --max-queue-wait; not set
  // while it is shorter.
  std::optional<absl::Time> long_since_;
  // Predicted times for the prompts and for the answers that wait, as of the last Update().
  absl::Duration prompt_wait_, answer_wait_;
};

}  // namespace baton
