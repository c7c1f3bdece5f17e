#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/goodput/search/capacity_search.h"

namespace baton {

// Searches of several modes, one load of each in turn (ABCABC...), so that what drifts in the
// machine drifts for all. The k-th load of every mode has the same seed. When all have ended, each
// mode is loaded once more at the highest capacity found, under one seed: latencies are then
// compared at the same rate. Pure, as CapacitySearch is.
class ComparedSearch {
 public:
  ComparedSearch(size_t modes, const SearchOptions& options);

  struct Step {
    size_t mode = 0;
    ProbePlan plan;
  };
  // The next load, or nothing at the end. The same until Add().
  std::optional<Step> Next() const { return next_; }
  void Add(std::vector<uint8_t> good);

  const CapacitySearch& search(size_t mode) const { return searches_[mode]; }
  // Measurement windows still needed at least and at most, seconds; and loads.
  Interval WindowsLeft() const;
  Interval LoadsLeft() const;

 private:
  void PlanNext(size_t after);
  double SameRateWindow(double rate) const;

  const SearchOptions options_;
  std::vector<CapacitySearch> searches_;
  std::optional<Step> next_;
  size_t same_rate_done_ = 0;
  double same_rate_ = 0;
};

}  // namespace baton
