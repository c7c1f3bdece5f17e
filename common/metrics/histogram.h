#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace baton {

// Bucket bounds for times on CPUs and GPUs: 0.1 ms to 500 s in steps of 1, 2, 5.
absl::Span<const double> SecondsBounds();
// Bucket bounds for tokens: powers of two from 1 to 2^20.
absl::Span<const double> TokensBounds();
// Bucket bounds for the sequences or prompts of one step: powers of two from 1 to 1024.
absl::Span<const double> BatchBounds();

// Counts values in fixed buckets, as Prometheus does. Any thread may observe a value; observing
// takes no lock.
class Histogram {
 public:
  // The `bounds` must ascend, and must outlive the histogram. Bucket i counts the values up to and
  // including bound i. One more bucket counts all larger values.
  explicit Histogram(absl::Span<const double> bounds);

  void Observe(double value);
  // Observes a time in seconds. A negative time counts as 0.
  void Observe(absl::Duration time);

  struct Snapshot {
    std::vector<uint64_t> counts;  // per bucket, not cumulative; bounds + 1 entries
    uint64_t count = 0;            // sum of `counts`
    // Sum of the values. It may differ from `counts` by the values that are being observed at this
    // moment.
    double sum = 0;
  };
  Snapshot Take() const;
  absl::Span<const double> bounds() const { return bounds_; }

 private:
  const absl::Span<const double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace baton
