#pragma once

#include <array>
#include <list>
#include <optional>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/membership.h"

namespace baton {

// How long a prompt waits before it is offered again when every worker for it was full.
inline constexpr absl::Duration kFullPause = absl::Milliseconds(20);

// The worker that computes a prompt.
struct Placement {
  Worker* worker = nullptr;
  bool colocated = false;  // a decode worker, which then writes the answer too
};

// Owns the order of the requests that wait for a worker: those that ran before come first. Decides
// which one leaves next, and to which worker. Runs on the core's loop thread.
//
// A request is passed over only by requests that go where it can't go: every place is offered to
// the oldest request that can use it, so none starves. A request that does not fit any worker
// leaves the queue with the reason; the caller fails it.
class RequestQueue {
 public:
  RequestQueue(CoreContext* core, Membership* membership) : core_(core), membership_(membership) {}

  // A request that has never run goes to the back of those that have never run. One that ran before
  // goes to the back of those that ran before, or with `front` to their front.
  void Add(Request& request, bool front);
  // Does nothing if the request is not queued.
  void Remove(Request& request);
  size_t size() const { return fresh_.size() + again_.size(); }
  size_t fresh() const { return fresh_.size(); }  // that have never run

  // Decides max_tokens, and checks the sum with the prompt against what the workers can hold.
  // InvalidArgument if it does not fit.
  absl::Status Size(Request& request) const;
  // Called when another identity is served. Requests that have not begun are sized again when they
  // leave the queue.
  void ForgetSizes();
  // Workers have changed. The wait for workers counts only while there are none.
  void NoteWorkers();
  // A place may have become free: a round is due.
  void LookAgain() { due_ = true; }
  bool RoundDue() const { return due_ || core_->now >= round_at_; }
  absl::Time NextWake() const { return due_ ? absl::InfinitePast() : round_at_; }

  // Looks through the queue, oldest first, and hands out what leaves it: a request and its worker,
  // or one that does not fit, with the reason. `leave` may change places at workers, and nothing
  // else that this class looks at. `awaited`: see WorkerTable::Places. `begun`: identities that
  // requests began with.
  using Leave = absl::FunctionRef<void(Request&, const absl::StatusOr<Placement>&)>;
  void RunRound(const std::set<WorkerKey>& awaited, std::set<ModelIdentity> begun, Leave leave);

 private:
  CoreContext* const core_;
  Membership* const membership_;
  std::list<Request*> fresh_, again_;
  std::array<int, v1::ServingMode_ARRAYSIZE> queued_of_mode_{};
  bool due_ = false;
  absl::Time round_at_ = absl::InfiniteFuture();
  // What NoteWorkers saw last: the served identity, and those with a pair and with a decode worker.
  std::optional<ModelIdentity> noted_served_;
  std::set<ModelIdentity> noted_pairs_, noted_decode_;
};

}  // namespace baton
