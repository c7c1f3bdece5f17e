#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace baton {

// Bounds that fit CPUs and GPUs alike: 0.1 ms to 500 s in steps of 1, 2, 5.
absl::Span<const double> SecondsBounds();
// Powers of two, 1 to 2^20.
absl::Span<const double> TokensBounds();
// Powers of two, 1 to 1024: sequences or prompts of one step.
absl::Span<const double> BatchBounds();

// How values spread over fixed buckets, as Prometheus counts them. Any thread may observe; an
// observation takes no lock.
class Histogram {
 public:
  // `bounds` ascend, and outlive the histogram. Values up to and with bound i count for bucket i;
  // one more bucket takes what lies above all.
  explicit Histogram(absl::Span<const double> bounds);

  void Observe(double value);
  // In seconds. Less than nothing counts as nothing.
  void Observe(absl::Duration time);

  struct Snapshot {
    std::vector<uint64_t> counts;  // of each bucket alone, bounds + 1
    uint64_t count = 0;            // their sum
    double sum = 0;                // of the values; may be ahead of or behind `counts` by what is
                                   // being observed right now
  };
  Snapshot Take() const;
  absl::Span<const double> bounds() const { return bounds_; }

 private:
  const absl::Span<const double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace baton
