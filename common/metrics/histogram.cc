#include "common/metrics/histogram.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr double kSeconds[] = {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2,
                               0.5,  1,    2,    5,    10,   20,   50,   100,  200,  500};
constexpr double kTokens[] = {1,     2,     4,     8,      16,     32,     64,
                              128,   256,   512,   1024,   2048,   4096,   8192,
                              16384, 32768, 65536, 131072, 262144, 524288, 1048576};

}  // namespace

absl::Span<const double> SecondsBounds() { return kSeconds; }
absl::Span<const double> TokensBounds() { return kTokens; }
absl::Span<const double> BatchBounds() { return absl::MakeConstSpan(kTokens).first(11); }

Histogram::Histogram(absl::Span<const double> bounds)
    : bounds_(bounds), counts_(new std::atomic<uint64_t>[bounds.size() + 1]()) {
  BATON_CHECK(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) ==
              bounds.end())
      << "bounds of a histogram that do not ascend";
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::Observe(absl::Duration time) {
  Observe(absl::ToDoubleSeconds(std::max(time, absl::ZeroDuration())));
}

Histogram::Snapshot Histogram::Take() const {
  Snapshot snapshot;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    snapshot.counts.push_back(counts_[i].load(std::memory_order_relaxed));
    snapshot.count += snapshot.counts.back();
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

}  // namespace baton
