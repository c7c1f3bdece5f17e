#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

// A level that its owner sets when it changes, and that any thread reads. For a value that can be
// computed at each scrape, use MetricRegistry::AddGauge with a function: that costs the owner
// nothing.
class Gauge {
 public:
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

}  // namespace baton
