#include "router/core/worker_health.h"

#include <algorithm>

namespace baton {

void WorkerHealth::Began(LegKey leg, absl::Time now) {
  if (state_ != State::kEjected || now < until_) return;
  state_ = State::kProbing;
  probe_ = leg;
  probe_began_ = now;
}

void WorkerHealth::Ended(LegKey leg) {
  if (state_ == State::kProbing && leg == probe_) state_ = State::kEjected;
}

bool WorkerHealth::Succeeded(absl::Time now) {
  failures_ = 0;
  if (state_ == State::kInUse) return false;
  // A request from the time before the ejection proves less than a probe, but it proves that the
  // worker does not fail all requests.
  state_ = State::kInUse;
  in_use_since_ = now;
  return true;
}

bool WorkerHealth::BroughtToken(LegKey leg, absl::Time now) {
  return Probes(leg) && now - probe_began_ >= kLongProbe && Succeeded(now);
}

bool WorkerHealth::Failed(LegKey leg) {
  if (ejected()) return Probes(leg);  // other requests are from the time before the ejection
  return ++failures_ >= kFailures;
}

void WorkerHealth::Eject(absl::Time now) {
  if (state_ == State::kInUse && now - in_use_since_ >= kForgivenAfter) ejections_ = 0;
  state_ = State::kEjected;
  until_ = now + std::min(kFirstPause * (1 << std::min(ejections_, 10)), kMaxPause);
  ++ejections_;
  failures_ = 0;
  probe_ = 0;
}

}  // namespace baton
