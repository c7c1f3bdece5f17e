#include "router/core/retry_budget.h"

#include <algorithm>

namespace baton {

RetryBudget::Second& RetryBudget::At(absl::Time now) {
  const int64_t number = absl::ToUnixSeconds(now);
  for (Second& second : seconds_) {
    if (second.number <= number - kSeconds) second = {};
  }
  Second& second = PlaceOf(number);
  if (second.number != number) second = {.number = number};
  return second;
}

RetryBudget::Second& RetryBudget::PlaceOf(int64_t number) {
  // The remainder is negative before 1970, which a clock that was never set may show.
  return seconds_[static_cast<size_t>((number % kSeconds + kSeconds) % kSeconds)];
}

bool RetryBudget::Take(absl::Time now) {
  Second& second = At(now);
  const auto share = static_cast<uint64_t>(kShare * static_cast<double>(attempts()));
  if (retries() >= std::max(kAlways, share)) return false;
  ++second.retries;
  return true;
}

void RetryBudget::GiveBack(absl::Time taken) {
  const int64_t number = absl::ToUnixSeconds(taken);
  Second& second = PlaceOf(number);
  if (second.number == number) --second.retries;
}

uint64_t RetryBudget::attempts() const {
  uint64_t sum = 0;
  for (const Second& second : seconds_) sum += second.attempts;
  return sum;
}

uint64_t RetryBudget::retries() const {
  uint64_t sum = 0;
  for (const Second& second : seconds_) sum += second.retries;
  return sum;
}

}  // namespace baton
