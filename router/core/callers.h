#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "router/core/forecast.h"

namespace baton {

struct Request;

// One caller: everyone who sends requests from one address, or under one name.
struct Caller {
  std::string name;
  // Requests that have never run, in order of arrival. RequestQueue changes the list.
  std::list<Request*> waiting;
  Work work;  // The work of these requests.
  // Tokens that were computed for this caller. Raised when the caller begins to wait, so that it
  // gets no credit for the time in which it wanted nothing.
  uint64_t charged = 0;
  // Tokens that the caller's running requests have probably still to compute.
  uint64_t expected_tokens = 0;
  int requests = 0;  // Requests that exist, in any state.
  // Each request could wait for some seconds and still end before its deadline: mean of the inverse
  // of these seconds, and the number of requests of which it is the mean.
  double inverse_slack = 0;
  int slacks_seen = 0;

  // The caller with the smallest value is next.
  uint64_t turn() const { return charged + expected_tokens; }
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

  // Join() counts one more request of the caller of this name, and Leave() one less. The caller
  // stays at its address while it has a request.
  Caller* Join(const std::string& name);
  void Leave(Caller* caller);

  // Must be called before a request is added to the empty list of waiting requests of `caller`.
  // `smallest` is the smallest `charged` of the callers that wait; not set if none waits.
  void BeginsToWait(Caller* caller, std::optional<uint64_t> smallest);
  // Notes that an attempt at the request begins, which will probably compute `tokens` tokens.
  // Ended() must follow.
  void Began(Request& request, uint64_t tokens);
  // Charges the caller of a running request for tokens that a worker has computed.
  void Charge(Request& request, uint64_t tokens);
  // Notes that the attempt has ended.
  void Ended(Request& request);

  size_t size() const { return callers_.size(); }

 private:
  std::map<std::string, Caller> callers_;
  size_t idle_ = 0;     // Callers without requests.
  uint64_t floor_ = 0;  // Largest `charged` of a caller when one of its attempts began.
};

}  // namespace baton
