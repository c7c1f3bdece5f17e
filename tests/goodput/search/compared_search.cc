#include "tests/goodput/search/compared_search.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace baton {

ComparedSearch::ComparedSearch(size_t modes, const SearchOptions& options)
    : options_(options), searches_(modes, CapacitySearch(options)) {
  BATON_CHECK(modes > 0);
  PlanNext(modes - 1);
}

void ComparedSearch::Add(std::vector<uint8_t> good) {
  BATON_CHECK(next_.has_value());
  const size_t mode = next_->mode;
  if (next_->plan.purpose == ProbePlan::Purpose::kSameRate) {
    ++same_rate_done_;
  } else {
    searches_[mode].Add(std::move(good));
  }
  PlanNext(mode);
}

double ComparedSearch::SameRateWindow(double rate) const {
  return std::max({options_.probe_s, options_.longest_s / 2, options_.min_requests / rate});
}

void ComparedSearch::PlanNext(size_t after) {
  next_.reset();
  for (size_t i = 1; i <= searches_.size(); ++i) {
    const size_t mode = (after + i) % searches_.size();
    if (searches_[mode].finished()) continue;
    next_ = Step{mode, *searches_[mode].Next()};
    return;
  }
  if (searches_.size() < 2 || same_rate_done_ == searches_.size()) return;
  if (same_rate_done_ == 0) {
    for (const CapacitySearch& search : searches_) {
      const Capacity found = Capacities({search.probes()}, options_.goal, 0).of(0);
      if (found.where != Capacity::Where::kBelow) same_rate_ = std::max(same_rate_, found.rate);
    }
    // No mode reaches the goal at any rate, so there is no rate at which to compare them.
    if (same_rate_ == 0) return;
  }
  size_t longest = 0;
  for (const CapacitySearch& search : searches_)
    longest = std::max(longest, search.probes().size());
  next_ = Step{same_rate_done_,
               {.purpose = ProbePlan::Purpose::kSameRate,
                .rate = same_rate_,
                .window_s = SameRateWindow(same_rate_),
                .seed = options_.seed + longest}};
}

Interval ComparedSearch::WindowsLeft() const {
  Interval left;
  for (const CapacitySearch& search : searches_) {
    left.low += search.WindowsLeft().low;
    left.high += search.WindowsLeft().high;
  }
  if (searches_.size() > 1) {
    const double rate = same_rate_ > 0 ? same_rate_ : options_.first_rate;
    const double same = (searches_.size() - same_rate_done_) * SameRateWindow(rate);
    left.low += same;
    left.high += same;
  }
  return left;
}

Interval ComparedSearch::LoadsLeft() const {
  const Interval windows = WindowsLeft();
  return {std::ceil(windows.low / std::max(options_.probe_s, options_.longest_s / 2)),
          std::ceil(windows.high / options_.probe_s)};
}

}  // namespace baton
