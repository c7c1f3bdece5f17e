#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/served_identity.h"
#include "router/core/worker_caches.h"
#include "router/core/worker_table.h"

namespace baton {

// Owns the table of workers and the choice of the identity that is served. Knows what a request can
// get from the workers. Tells each worker its peers, and the server whether the router serves.
// Core's loop thread only.
//
// A registration that is refused changes nothing, and its stream is closed. A worker whose stream
// or reports have stopped gets no new work. Its running RPCs go on, and the worker is dropped when
// all of them have ended.
class Membership {
 public:
  // `core` outlives the object.
  explicit Membership(CoreContext* core);

  // --- Events ---
  // Accepts a worker that attaches, and returns its record. Adds the processes that the worker
  // replaces to `replaced`; the caller has to fail the RPCs to them. If the worker is refused, adds
  // the action that closes its stream, and returns null.
  const Worker* Attach(const WorkerAttached& event, std::vector<WorkerKey>* replaced);
  // Notes that the stream `attach` has closed. Returns false if no worker is attached by this
  // stream.
  bool Detach(AttachKey attach);
  // Takes a worker's message on its prefix cache. Closes the stream if changes are missing.
  void Cached(WorkerCached event);
  // Does not count `by`, the time during which the router was not running, as silence of workers.
  void Excuse(absl::Duration by);
  // Reports from now on that the router takes no new requests.
  void Drain();

  // --- Work that is due ---
  // Rebuilds all pairs of workers and chooses the served identity. Call it when workers have
  // changed, and when RefreshDue() is true. Returns true if another identity is served than before,
  // or if requests may be less long.
  bool Refresh();
  // True if it is time for Refresh(): a worker's last report has become too old, a kept capacity
  // ends, or another identity is to be served.
  bool RefreshDue() const;
  // Logs a warning if the worker does not have the served identity.
  void WarnOfIdentity(const Worker& worker) const;
  // Notes that a worker was ejected or is used again, for the metrics.
  void HealthChanged() { serving_due_ = true; }
  // Notes that a worker has answered or failed a request.
  void NoteOutcome(Worker* worker, bool failed) {
    worker->errors.Add(failed, core_->now);
    serving_due_ = serving_due_ || failed;
  }
  // Drops workers that have been detached for a while (forget_after) and have no open RPC. Does
  // nothing before this is due.
  void Forget();
  // Makes Forget() due at `time` at the latest.
  void ForgetAt(absl::Time time) { forget_at_ = std::min(forget_at_, time); }
  // Sends the workers their changed lists of peers, and the server its changed state. `waiting` is
  // the number of queued requests, which a warning may name.
  void Tell(size_t waiting);
  // Time at which Refresh(), Forget() or Tell() has something to do. InfinitePast: now.
  absl::Time NextWake() const;

  // --- Resources for a request ---
  WorkerTable& workers() { return workers_; }
  const WorkerTable& workers() const { return workers_; }
  WorkerCaches& caches() { return caches_; }
  const std::optional<ModelIdentity>& served() const { return served_.served(); }
  bool draining() const { return draining_; }
  // Returns what the request needs of a worker. Assumes one token if max_tokens is not decided yet.
  Need NeedOf(const Request& request) const;
  // Longest prompt and answer together, in tokens, that workers have offered for the request's mode
  // and identity; 0: none yet.
  int64_t CapacityFor(const Request& request) const;
  // Returns true if there are workers for the request's mode and identity. If not, MissingFor()
  // returns a sentence on what is missing.
  bool Servable(const Request& request) const;
  std::string MissingFor(const Request& request) const;

 private:
  // Returns the identity (model and numerics) with which the request began. For a request that has
  // not begun, returns the identity that the router serves.
  const std::optional<ModelIdentity>& IdentityFor(const Request& request) const;
  std::string Missing(const Need& need, bool pair, bool begun) const;
  ServingChanged Serving() const;
  // Schedules a warning in case the router does not serve, or does not use some workers, for some
  // seconds.
  void WatchUnused(const ServingChanged& serving);
  void WarnOfUnused(size_t waiting);

  CoreContext* const core_;
  WorkerCaches caches_;
  WorkerTable workers_;
  ServedIdentity served_;
  absl::Time stale_at_ = absl::InfiniteFuture();
  absl::Time forget_at_ = absl::InfiniteFuture();
  bool peers_due_ = false;
  bool serving_due_ = true;
  // Time at which the error rates of workers have to be told anew.
  absl::Time errors_at_ = absl::InfiniteFuture();
  bool draining_ = false;
  std::optional<ServingChanged> told_;  // State that the server was told last.
  // `unused_` is the reason for a warning: why the router does not serve, or which workers are not
  // used. `warn_at_` is the time at which the warning is logged next.
  std::string unused_;
  absl::Time warn_at_ = absl::InfiniteFuture();
};

}  // namespace baton
