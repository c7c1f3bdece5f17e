#include "router/core/callers.h"

#include <algorithm>

#include "router/core/request.h"

namespace baton {

Caller* Callers::Join(const std::string& name) {
  const auto [found, added] = callers_.try_emplace(name);
  Caller& caller = found->second;
  if (added) caller.name = name;
  if (!added && caller.requests == 0) --idle_;
  ++caller.requests;
  return &caller;
}

void Callers::Leave(Caller* caller) {
  if (--caller->requests > 0) return;
  if (caller->charged <= floor_) {
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
  request.expected_tokens = tokens;
  request.caller->expected_tokens += tokens;
}

void Callers::Charge(Request& request, uint64_t tokens) {
  Caller& caller = *request.caller;
  caller.charged += tokens;
  const uint64_t kept = std::min(tokens, request.expected_tokens);
  request.expected_tokens -= kept;
  caller.expected_tokens -= kept;
}

void Callers::Ended(Request& request) {
  request.caller->expected_tokens -= request.expected_tokens;
  request.expected_tokens = 0;
}

}  // namespace baton
