#include "router/core/callers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/hash.h"
#include "router/core/request.h"

namespace baton {
namespace {

// Time between two looks at all callers.
constexpr absl::Duration kAdvanceEvery = absl::Milliseconds(10);
// Tokens by which a caller that has always had requests may have had fewer than its equal share. It
// keeps them when none of its requests waits for a moment.
constexpr uint64_t kMayLag = 4096;

}  // namespace

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
  const uint64_t had_by_all = std::min(floor_, static_cast<uint64_t>(fair_));
  if (caller->charged <= had_by_all && limits_.tokens_per_minute == 0) {
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
  const uint64_t start = Start(smallest);
  if (!smallest) {
    fair_ = std::max(fair_, static_cast<double>(start));
    computed_ = 0;
  }
  caller->charged = std::max(caller->charged, start);
}

uint64_t Callers::Start(std::optional<uint64_t> smallest) const {
  const auto fair = static_cast<uint64_t>(fair_);
  return std::max(smallest.value_or(floor_), fair - std::min(fair, kMayLag));
}

void Callers::Advance(absl::Time now) {
  if (computed_ == 0 || now < advanced_ + kAdvanceEvery) return;
  advanced_ = now;
  // A caller that has had more than its share would still be served if all had had equal shares.
  const auto waiting = std::count_if(callers_.begin(), callers_.end(), [this](const auto& entry) {
    return entry.second.requests > 0 || static_cast<double>(entry.second.charged) > fair_;
  });
  fair_ += static_cast<double>(std::exchange(computed_, 0)) /
           static_cast<double>(std::max<std::ptrdiff_t>(waiting, 1));
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
  computed_ += tokens;
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
  fair_ = static_cast<double>(floor_);
}

absl::Duration Callers::AllowanceComesIn(Caller* caller, absl::Time now) const {
  const double limit = static_cast<double>(limits_.tokens_per_minute);
  if (limit == 0) return absl::ZeroDuration();
  if (caller->refilled != absl::InfinitePast()) {
    const double minutes = absl::FDivDuration(now - caller->refilled, absl::Minutes(1));
    caller->allowance = std::min(limit, caller->allowance + limit * minutes);
  }
  caller->refilled = now;
  // Requests that run or wait will take their part.
  const double left =
      caller->allowance - static_cast<double>(caller->expected_tokens) - caller->work.tokens();
  return left > 0 ? absl::ZeroDuration() : absl::Minutes((1 - left) / limit);
}

}  // namespace baton
