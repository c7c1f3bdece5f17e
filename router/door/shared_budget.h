#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/mutex.h"

namespace baton {

// An amount of something that all callers share, for example of bytes. Any thread.
//
// Guarantees:
// - All callers together have at most the max. A single amount may be larger while nothing else is
//   taken, so that no amount is too large for ever.
// - A caller that has nothing gets any amount that is left.
// - A caller that has something gets more only if it then has at most three times what is left
//   (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
//   IEEE/ACM Transactions on Networking, 1998). So one caller can take three quarters of the max,
//   and two can take three sevenths each.
class SharedBudget {
 public:
  explicit SharedBudget(size_t max) : max_(max) {}
  SharedBudget(const SharedBudget&) = delete;
  SharedBudget& operator=(const SharedBudget&) = delete;

  // An amount that a caller has. The destructor gives it back, so the budget must outlive it.
  class Share {
   public:
    Share(SharedBudget* budget, std::string caller, size_t amount)
        : budget_(budget), caller_(std::move(caller)), amount_(amount) {}
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          caller_(std::move(other.caller_)),
          amount_(other.amount_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (budget_ != nullptr) budget_->GiveBack(caller_, amount_);
    }

   private:
    SharedBudget* budget_;
    const std::string caller_;
    const size_t amount_;
  };
  // Takes an amount for a caller. Returns nothing, and takes nothing, if the caller gets no more.
  std::optional<Share> Take(const std::string& caller, size_t amount);

  size_t max() const { return max_; }
  // Return what all callers have, and what one has.
  size_t taken() const;
  size_t TakenBy(const std::string& caller) const;

 private:
  void GiveBack(const std::string& caller, size_t amount);

  const size_t max_;
  mutable Mutex mutex_;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_ ABSL_GUARDED_BY(mutex_);  // Amount of each caller that has any.
};

}  // namespace baton
