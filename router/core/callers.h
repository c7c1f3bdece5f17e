#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "router/core/forecast.h"
#include "router/core/request_metrics.h"

namespace baton {

struct Request;

// Limits of each caller. 0: no limit.
struct CallerLimits {
  int queued = 0;                 // Requests that wait and have never run.
  int running = 0;                // Requests that workers serve.
  int64_t tokens_per_minute = 0;  // Computed tokens, prompts and answers alike.
};

// One caller: everyone who sends requests from one address, or under one name.
struct Caller {
  std::string name;
  uint64_t id = 0;  // Hash of the name, which workers get.
  // Requests that have never run, in order of arrival. RequestQueue changes the list.
  std::list<Request*> waiting;
  Work work;  // The work of these requests.
  // Tokens that were computed for this caller. Raised when the caller begins to wait, so that it
  // gets no credit for the time in which it wanted nothing.
  uint64_t charged = 0;
  // Tokens that the caller's running requests have probably still to compute.
  uint64_t expected_tokens = 0;
  int requests = 0;  // Requests that exist, in any state.
  int running = 0;   // Requests that have an attempt.
  // Tokens that may still be computed under the limit per minute, as of `refilled`. Negative if
  // more were computed.
  double allowance = 0;
  absl::Time refilled = absl::InfinitePast();
  CallerMetrics::One* metrics = nullptr;
  // Each request could wait for some seconds and still end before its deadline: mean of the
  // logarithm of these seconds, and the number of requests of which it is the mean.
  double log_slack = 0;
  int slacks_seen = 0;

  // Requests whose prompt a worker is computing, and the largest Turn() of these requests.
  int prompts = 0;
  uint64_t last_turn = 0;

  // Returns the tokens that the caller has had, for the comparison with other callers. It counts
  // three quarters of the expected tokens. With all of them, callers with long answers would get
  // more than their share whenever the workers finish more than they begin, and less whenever they
  // begin more. With only a quarter, shares swing even more in the simulator: what a long answer
  // takes would count only seconds after it has begun.
  uint64_t had() const { return charged + expected_tokens / 4 * 3; }
  // Returns the turn of a request with a prompt of `tokens` tokens: the request with the smallest
  // turn is next. It is had() and the prompt's tokens, and never before the caller's own prompts at
  // the workers. (Without that, it could be: not all of the expected tokens count, and some are
  // never computed.)
  uint64_t Turn(uint64_t tokens) const { return std::max(last_turn, had() + tokens); }
};

// Owns the callers, and counts the tokens that were computed for each. RequestQueue serves the
// caller first that has had the fewest, so a caller with many requests or long prompts can't keep
// the others from their share (Sheng et al., "Fairness in Serving Large Language Models", OSDI
// 2024). Core's loop thread only.
//
// A caller without requests is remembered while it has had more tokens than others. At most
// kMaxIdle such callers are remembered.
class Callers {
 public:
  static constexpr size_t kMaxIdle = 4096;

  // `metrics` outlives the object.
  Callers(const CallerLimits& limits, CallerMetrics* metrics)
      : limits_(limits), metrics_(metrics) {}

  // Join() counts one more request of the caller of this name, and Leave() one less. The caller
  // stays at its address while it has a request.
  Caller* Join(const std::string& name);
  void Leave(Caller* caller);

  // Must be called before a request is added to the empty list of waiting requests of `caller`.
  // `smallest` is the smallest `charged` of the callers that wait; not set if none waits.
  void BeginsToWait(Caller* caller, std::optional<uint64_t> smallest);
  // Returns the smallest `charged` with which a caller begins to wait, for the same `smallest`.
  uint64_t Start(std::optional<uint64_t> smallest) const;
  // Must be called often while callers wait. Raises what callers that begin to wait later are
  // charged at least.
  void Advance(absl::Time now);
  // Notes that an attempt at the request begins, which will probably compute `tokens` tokens.
  // Ended() must follow.
  void Began(Request& request, uint64_t tokens);
  // Charges the caller of a running request for tokens that a worker has computed.
  void Charge(Request& request, uint64_t tokens);
  // Notes that the attempt has ended.
  void Ended(Request& request);

  // Treats all callers as if they had been charged the same so far.
  void ForgetCharges();

  // Returns how long the caller must wait until it may ask for more tokens; zero if it may now.
  absl::Duration AllowanceComesIn(Caller* caller, absl::Time now) const;
  // True if no further request of the caller may begin before one of its running requests ends.
  bool RunsEnough(const Caller& caller) const {
    return limits_.running > 0 && caller.running >= limits_.running;
  }
  const CallerLimits& limits() const { return limits_; }

  size_t size() const { return callers_.size(); }

 private:
  const CallerLimits limits_;
  CallerMetrics* const metrics_;
  std::map<std::string, Caller> callers_;
  size_t idle_ = 0;     // Callers without requests.
  uint64_t floor_ = 0;  // Largest `charged` of a caller when one of its attempts began.
  // Tokens that each caller with requests would have had if all of them had equal shares (the
  // virtual time of Demers et al., "Analysis and Simulation of a Fair Queueing Algorithm", SIGCOMM
  // 1989). It grows while a long prompt waits, so callers that begin to wait later can't be served
  // before that prompt without end.
  double fair_ = 0;
  uint64_t computed_ = 0;  // Tokens of all callers since the last Advance().
  absl::Time advanced_ = absl::InfinitePast();
};

}  // namespace baton
