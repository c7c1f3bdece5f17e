#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/served_identity.h"
#include "router/core/worker_table.h"

namespace baton {

// Owns the table of workers and the choice of the identity that is served. Knows what a request can
// get from the workers. Tells each worker of its peers, and the server whether the router serves.
// Runs on the core's loop thread.
//
// A registration that is refused changes nothing, and its stream is closed. A worker whose stream
// or reports have stopped gets no new work; its legs go on, and it is dropped when it has none.
class Membership {
 public:
  explicit Membership(CoreContext* core);

  // --- Events ---
  // Takes a worker and returns it. `replaced` gets the processes that it displaces: their legs are
  // as good as dead. Null: it was refused, and its stream is being closed.
  const Worker* Attach(const WorkerAttached& event, std::vector<WorkerKey>* replaced);
  // The stream has closed. False if no worker is attached by it.
  bool Detach(AttachKey attach);
  // The router was not running for `by`: the silence of workers meanwhile does not count.
  void Excuse(absl::Duration by);
  // No new requests are taken from now on.
  void Drain();

  // --- Work that is due ---
  // Looks at all pairs again and chooses the identity. To be called when workers have changed, and
  // when RefreshDue. True if another identity is served than before.
  bool Refresh();
  bool RefreshDue() const;
  // Warns of a worker that is not of the served identity.
  void WarnOfIdentity(const Worker& worker) const;
  // Drops detached workers without legs.
  void Forget();
  void ForgetAt(absl::Time time) { forget_at_ = std::min(forget_at_, time); }
  // Tells workers and the server what has changed. `waiting`: queued requests, for a warning.
  void Tell(size_t waiting);
  // When some of this work is due. InfinitePast: now.
  absl::Time NextWake() const;

  // --- What a request can get ---
  WorkerTable& workers() { return workers_; }
  const WorkerTable& workers() const { return workers_; }
  const std::optional<ModelIdentity>& served() const { return served_.served(); }
  bool draining() const { return draining_; }
  Need NeedOf(const Request& request, WorkerKey avoid = 0) const;
  // Longest prompt and answer together that was offered for such a request; 0: none yet.
  int64_t CapacityFor(const Request& request) const;
  // True if there are workers for its mode and identity. If not, MissingFor says what is missing.
  bool Servable(const Request& request) const;
  std::string MissingFor(const Request& request) const;

 private:
  // The identity that the request began with, or else the one that is served.
  const std::optional<ModelIdentity>& IdentityFor(const Request& request) const;
  std::string Missing(const Need& need, bool pair, bool begun) const;
  ServingChanged Serving() const;
  // A warning is due if the router does not serve, or does not use workers, for some seconds.
  void WatchUnused(const ServingChanged& serving);
  void WarnOfUnused(size_t waiting);

  CoreContext* const core_;
  WorkerTable workers_;
  ServedIdentity served_;
  absl::Time stale_at_ = absl::InfiniteFuture();
  absl::Time forget_at_ = absl::InfiniteFuture();
  bool peers_due_ = false;
  bool serving_due_ = true;
  bool draining_ = false;
  std::optional<ServingChanged> told_;  // to the server, the last time
  // Why the router does not serve, or which workers are not used, and when to warn of it.
  std::string unused_;
  absl::Time warn_at_ = absl::InfiniteFuture();
};

}  // namespace baton
