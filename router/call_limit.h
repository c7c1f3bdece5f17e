#pragma once

#include <atomic>
#include <optional>
#include <utility>

namespace baton {

// Limits the number of calls of one kind that may run at the same time. Any thread.
class CallLimit {
 public:
  explicit CallLimit(int max) : max_(max) {}

  // Permission for one call. Its destructor gives the place back, so the CallLimit must outlive it.
  class Place {
   public:
    explicit Place(CallLimit* limit) : limit_(limit) {}
    Place(Place&& other) noexcept : limit_(std::exchange(other.limit_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (limit_ != nullptr) --limit_->taken_;
    }

   private:
    CallLimit* limit_;
  };
  // Takes a place for one call. Returns nothing, and takes none, if all places are taken.
  std::optional<Place> Take() {
    if (taken_.fetch_add(1) < max_) return Place(this);
    --taken_;
    return std::nullopt;
  }

  int max() const { return max_; }
  int taken() const { return taken_; }

 private:
  const int max_;
  std::atomic<int> taken_ = 0;
};

}  // namespace baton
