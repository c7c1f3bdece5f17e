#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/goodput/search/capacity_search.h"

namespace baton {

// Searches of several modes in turn, one load of each mode after the other (ABCABC...), so that
// slow changes of the machine affect all modes alike. The k-th load of every mode has the same
// seed. After all searches, there is one more load per mode at the highest capacity found, all with
// the same seed, so that latencies are compared at the same rate. Pure logic: the owner runs the
// loads.
class ComparedSearch {
 public:
  ComparedSearch(size_t modes, const SearchOptions& options);

  struct Step {
    size_t mode = 0;
    ProbePlan plan;
  };
  // Returns the next load, or nothing if the search has ended. The result stays the same until
  // Add().
  std::optional<Step> Next() const { return next_; }
  void Add(std::vector<uint8_t> good);

  const CapacitySearch& search(size_t mode) const { return searches_[mode]; }
  // The two functions return the min and max of what the search still needs: WindowsLeft the
  // seconds of measurement windows, LoadsLeft the number of loads.
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
