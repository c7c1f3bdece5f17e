#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

// Counts events since the start of the process. Any thread. Costs one relaxed addition.
class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace baton
