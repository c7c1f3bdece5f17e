#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "router/core/core_events.h"

namespace baton {

// Decides from a worker's failures whether the worker gets requests. A plain value, one for each
// worker. Reads no clock.
//
// A worker that fails kFailures requests in a row is ejected: it gets no request for a time, which
// is kFirstPause at first, and twice as long each time after that, up to kMaxPause. Then one
// request is sent to it as a probe. If the probe succeeds, the worker is in use again; a probe that
// has brought tokens for kLongProbe has succeeded too, since an answer may take minutes. If it
// fails, the worker is ejected again. (This is a circuit breaker: M. Nygard, Release It!, 2007.)
class WorkerHealth {
 public:
  static constexpr int kFailures = 3;
  static constexpr absl::Duration kFirstPause = absl::Seconds(1);
  static constexpr absl::Duration kMaxPause = absl::Minutes(1);
  static constexpr absl::Duration kLongProbe = absl::Seconds(2);
  // A worker that has been in use for this time begins again with kFirstPause.
  static constexpr absl::Duration kForgivenAfter = absl::Minutes(1);

  // True if the worker should get no request now: it is ejected, or its probe is running.
  bool Out(absl::Time now) const {
    return state_ == State::kProbing || (state_ == State::kEjected && now < until_);
  }
  // True if the worker is ejected and has not passed a probe since.
  bool ejected() const { return state_ != State::kInUse; }
  // Time at which an ejected worker may get a probe.
  absl::Time until() const { return until_; }

  // Notes that the worker gets a request with the RPC `leg`. It is the probe if one is due.
  void Began(LegKey leg, absl::Time now);
  // Notes the end of an RPC to the worker. If it was a probe that has neither succeeded nor failed,
  // the next request is the probe.
  void Ended(LegKey leg);
  // Notes that the worker has served a request. Returns true if it was ejected until now.
  bool Succeeded(absl::Time now);
  // Notes that the RPC `leg`, or the decode worker to which this worker handed the KV of `leg`, has
  // sent a token. Returns true if this ends a long probe: the worker was ejected until now.
  bool BroughtToken(LegKey leg, absl::Time now);
  // True if `leg` is the latest probe, and the worker is still ejected.
  bool Probes(LegKey leg) const { return ejected() && probe_ != 0 && leg == probe_; }
  // Notes that the worker has failed the request of the RPC `leg`, which may have ended. Returns
  // true if the worker should be ejected. The caller calls Eject() unless too many workers are
  // ejected already.
  bool Failed(LegKey leg);
  void Eject(absl::Time now);

 private:
  // kEjected includes the time after `until_` in which no request has come.
  enum class State { kInUse, kEjected, kProbing };
  State state_ = State::kInUse;
  int failures_ = 0;   // Failures since the last success.
  int ejections_ = 0;  // Ejections that count for the length of the next pause.
  LegKey probe_ = 0;
  absl::Time probe_began_ = absl::InfinitePast();
  absl::Time until_ = absl::InfinitePast();
  absl::Time in_use_since_ = absl::InfinitePast();
};

}  // namespace baton
