#pragma once

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

  // Returns OK if the request, which has just arrived, may wait in the queue; otherwise the
  // refusal. Looks at the time only, not at the number of waiting requests.
  absl::Status OnArrival(const Request& request);
  // Returns OK if the request may begin now; otherwise the refusal.
  absl::Status OnTurn(const Request& request);
  // The refusal of a request because the queue is full, or because it has waited for too long.
  absl::Status QueueFull(const Request& request, std::string why);
  absl::Status WaitedTooLong(const Request& request);

  // Must be called after each look through the queue (RequestQueue::RunRound). `tickets_wait` is
  // true if a ticket waits for a decode worker with free blocks.
  void NoteRound(bool tickets_wait);

 private:
  // Time for which the predicted wait must be long before the newest requests go first.
  static constexpr absl::Duration kLongFor = absl::Seconds(1);

  // Predicted time until a new request of this caller would begin. `own` is the request's work.
  absl::Duration WaitOf(const Caller& caller, const Work& own) const;
  // Work that was given to workers and that they have not done.
  Work AtWorkers() const;
  // The time that the request needs from its beginning to its last token.
  absl::Duration OwnTime(const Request& request);
  // Returns the refusal, which says that it makes sense to come again after `in`.
  absl::Status Refuse(const Request& request, std::string why, absl::Duration in);
  // Returns how long a new request of this caller may wait at present. `slack` is the time that it
  // could wait and still end before its deadline.
  absl::Duration MaxWait(Caller* caller, absl::Duration slack);
  void Update();
  bool NewestFirst() const { return long_since_ && core_->now - *long_since_ >= kLongFor; }

  CoreContext* const core_;
  Membership* const membership_;
  RequestQueue* const queue_;
  std::mt19937_64 random_;
  // Since when the predicted wait has been longer than half of --max-queue-wait.
  std::optional<absl::Time> long_since_;
  absl::Duration prompt_wait_, answer_wait_;  // As of the last Update().
};

}  // namespace baton
