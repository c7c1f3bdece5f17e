#include "router/door/shared_budget.h"

namespace baton {
namespace {

constexpr size_t kTimesWhatIsLeft = 3;

}  // namespace

std::optional<SharedBudget::Share> SharedBudget::Take(const std::string& caller, size_t amount) {
  MutexLock lock(&mutex_);
  const auto found = of_.find(caller);
  const size_t own = found == of_.end() ? 0 : found->second;
  if (taken_ > 0) {
    if (taken_ + amount > max_) return std::nullopt;
    const size_t left = max_ - taken_ - amount;
    if (own > 0 && own + amount > kTimesWhatIsLeft * left) return std::nullopt;
  }
  if (amount > 0) of_[caller] += amount;
  taken_ += amount;
  return Share(this, caller, amount);
}

size_t SharedBudget::taken() const {
  MutexLock lock(&mutex_);
  return taken_;
}

size_t SharedBudget::TakenBy(const std::string& caller) const {
  MutexLock lock(&mutex_);
  const auto found = of_.find(caller);
  return found == of_.end() ? 0 : found->second;
}

void SharedBudget::GiveBack(const std::string& caller, size_t amount) {
  if (amount == 0) return;
  MutexLock lock(&mutex_);
  taken_ -= amount;
  const auto found = of_.find(caller);
  found->second -= amount;
  if (found->second == 0) of_.erase(found);
}

}  // namespace baton
