#include "router/core/callers.h"

#include <algorithm>

#include "common/base/hash.h"
#include "router/core/request.h"

namespace baton {

Caller* Callers::Join(const std::string& name) {
  const auto [found, added] = callers_.try_emplace(name);
  Caller& caller = found->second;
  if (added) {
    caller.name = name;
    caller.id = Hash64(name);
    caller.allowance = static_cast<double>(limits_.tokens_per_minute);
    caller.metrics = &metrics_->Of(name);
  }
  if (!added && caller.requests == 0) --idle_;
  ++caller.requests;
  caller.metrics->requests.Add();
  return &caller;
}

void Callers::Leave(Caller* caller) {
  if (--caller->requests > 0) return;
  // If tokens are limited, a caller that goes and comes again must not get a new allowance.
  if (caller->charged <= floor_ && limits_.tokens_per_minute == 0) {
    callers_.erase(callers_.find(caller->name));
    return;
  }
  if (++idle_ <= kMaxIdle) return;
  // There are too many idle callers. Forgets the half of them that were charged least.
  std::vector<uint64_t> charges;
  for (const auto& [name, one] : callers_) {
    if (one.requests == 0) charges.push_back(one.charged);
  }
  const auto middle = charges.begin() + static_cast<ptrdiff_t>(charges.size() / 2);
  std::nth_element(charges.begin(), middle, charges.end());
  const size_t before = callers_.size();
  std::erase_if(callers_, [&](const auto& entry) {
    return entry.second.requests == 0 && entry.second.charged <= *middle;
  });
  idle_ -= before - callers_.size();
}

void Callers::BeginsToWait(Caller* caller, std::optional<uint64_t> smallest) {
  caller->charged = std::max(caller->charged, smallest.value_or(floor_));
}

void Callers::Began(Request& request, uint64_t tokens) {
  floor_ = std::max(floor_, request.caller->charged);
  ++request.caller->running;
  request.expected_tokens = tokens;
  request.caller->expected_tokens += tokens;
}

void Callers::Charge(Request& request, uint64_t tokens) {
  Caller& caller = *request.caller;
  caller.charged += tokens;
  caller.allowance -= static_cast<double>(tokens);
  caller.metrics->tokens.Add(tokens);
  const uint64_t kept = std::min(tokens, request.expected_tokens);
  request.expected_tokens -= kept;
  caller.expected_tokens -= kept;
}

void Callers::Ended(Request& request) {
  --request.caller->running;
  request.caller->expected_tokens -= request.expected_tokens;
  request.expected_tokens = 0;
}

void Callers::ForgetCharges() {
  for (auto& [name, caller] : callers_) caller.charged = floor_;
}

absl::Duration Callers::AllowanceComesIn(Caller* caller, absl::Time now) const {
  const double limit = static_cast<double>(limits_.tokens_per_minute);
  if (limit == 0) return absl::ZeroDuration();
  if (caller->refilled != absl::InfinitePast()) {
    const double minutes = absl::FDivDuration(now - caller->refilled, absl::Minutes(1));
    caller->allowance = std::min(limit, caller->allowance + limit * minutes);
  }
  caller->refilled = now;
  // Requests that run will take their part.
  const double left = caller->allowance - static_cast<double>(caller->expected_tokens);
  return left > 0 ? absl::ZeroDuration() : absl::Minutes((1 - left) / limit);
}

}  // namespace baton
