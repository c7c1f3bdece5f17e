#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/membership.h"

namespace baton {

// Time after which a prompt is offered again when every worker for it was full.
inline constexpr absl::Duration kFullPause = absl::Milliseconds(20);

// The worker that computes a prompt.
struct Placement {
  Worker* worker = nullptr;
  uint64_t cached_tokens = 0;  // Tokens of the prompt that the worker is expected to have cached.
  bool colocated = false;  // True if `worker` is a decode worker, which then writes the answer too.
};

// Owns the order of the requests that wait for a worker; requests that ran before come first.
// Decides which request leaves next, and to which worker. Core's loop thread only. Does not own the
// requests: Remove() one before it is destroyed.
//
// Among requests that never ran, callers take turns (Callers). The requests of one caller leave in
// order of arrival, or the newest first while SetNewestFirst(true) holds. A request overtakes
// another one that would come first only if it goes to a worker that the other one cannot use.
// Every free place is offered to the first request that can use it. A request that is larger than
// every worker's capacity leaves the queue with the reason, and the core fails it. A request for
// which no worker is attached stays queued until its time limit.
class RequestQueue {
 public:
  // The arguments outlive the object.
  RequestQueue(CoreContext* core, Membership* membership) : core_(core), membership_(membership) {}

  // Queues the request. A request that has never run goes behind the other ones of its caller. One
  // that ran before goes behind all that ran before, or in front of them if `front` is true.
  void Add(Request& request, bool front);
  // Takes the request off the queue. Does nothing if the request is not queued.
  void Remove(Request& request);
  size_t size() const { return fresh_ + again_.size(); }
  size_t fresh() const { return fresh_; }  // Requests that have never run.
  // The work of all queued requests, and the part of those that ran before.
  const Work& work() const { return work_; }
  const Work& work_again() const { return work_again_; }
  // The smallest Caller::charged of the callers that wait; not set if none waits.
  std::optional<uint64_t> SmallestCharge() const;
  // Callers with requests that have never run, in any order.
  const std::vector<Caller*>& callers() const { return callers_; }
  // Sets the order of each caller's requests that have never run.
  void SetNewestFirst(bool newest_first) { newest_first_ = newest_first; }

  // Decides max_tokens, and checks that prompt and answer fit the workers. Returns InvalidArgument
  // if they do not.
  absl::Status Size(Request& request) const;
  // Must be called when another identity is served. Size() is then called again for queued requests
  // that have not begun, when they leave the queue.
  void ForgetSizes();
  // Notes that workers have changed. Each queued request that no worker can serve now begins to
  // wait for workers. For the other requests this wait ends.
  void NoteWorkers();
  // Makes a call of RunRound() due, because a worker may have become free for a prompt.
  void LookAgain() { due_ = true; }
  // True if RunRound() has something to do now.
  bool RoundDue() const { return due_ || core_->now >= round_at_; }
  // Time at which RunRound() is due next. InfinitePast: now.
  absl::Time NextWake() const { return due_ ? absl::InfinitePast() : round_at_; }

  // Called with a request that has left the queue, and with the chosen worker, or with the error of
  // Size() if the request is too large.
  using Leave = absl::FunctionRef<void(Request&, const absl::StatusOr<Placement>&)>;
  // Looks through the queue, in the order in which requests leave it, and calls `leave` for each
  // request that leaves it. `leave` may give prompts to workers, charge callers, and bind the other
  // answers of the request's client to the same identity. It must change nothing else that this
  // class reads.
  // `awaited` are the decode workers whose free blocks are kept for sequences that already have
  // their prompt's KV. `begun` are the identities with which requests have begun. These requests
  // can't change to the served identity.
  void RunRound(const std::set<WorkerKey>& awaited, std::set<ModelIdentity> begun, Leave leave);
  // True if the last RunRound() left a request that some workers fit, but for which none had a
  // place. `colocated_wait` counts the requests that only a decode worker alone can serve.
  bool prompts_wait() const { return prompts_wait_; }
  bool colocated_wait() const { return colocated_wait_; }

 private:
  class Round;
  using Place = std::list<Request*>::iterator;
  // Result of a look at a request in a round.
  enum class Look { kLeft, kPassed, kNotNow, kEndRound };
  Look LookAt(Round& round, std::list<Request*>* list, Place place, int* passed, Leave leave);
  void LookAtFresh(Round& round, int* passed, Leave leave);
  void NoteRemoved(Request& request);

  CoreContext* const core_;
  Membership* const membership_;
  std::list<Request*> again_;
  std::vector<Caller*> callers_;
  size_t fresh_ = 0;
  Work work_, work_again_;
  bool newest_first_ = false;
  bool prompts_wait_ = false, colocated_wait_ = false;
  std::array<int, kServingModes> queued_of_mode_{};
  bool due_ = false;
  absl::Time round_at_ = absl::InfiniteFuture();
  // State at the last call of NoteWorkers: the served identity, the identities with a pair of
  // prefill and decode worker, and the identities with a ready decode worker.
  std::optional<ModelIdentity> noted_served_;
  std::set<ModelIdentity> noted_pairs_, noted_decode_;
};

}  // namespace baton
