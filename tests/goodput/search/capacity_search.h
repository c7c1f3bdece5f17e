#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/goodput/search/capacity.h"

namespace baton {

struct SearchOptions {
  double goal = 0.9;           // attainment
  double first_rate = 1;       // requests/s, where the bracket begins
  double lowest_rate = 0.01;   // given up below
  double highest_rate = 1e4;   // and above
  double resolution = 0.03;    // the bracket is narrow enough when high <= low * (1 + this)
  double probe_s = 30;         // measurement window of a first probe at a rate
  double longest_s = 120;      // of all probes at one rate together, while they leave it undecided
  double least_requests = 50;  // both windows grow where a low rate would offer fewer
  uint64_t seed = 1;           // of the first probe; every further one takes the next
};

enum class Reached { kUndecided, kMet, kMissed };

// What is to be run next.
struct ProbePlan {
  enum class Purpose { kBracket, kBisect, kLengthen, kConfirmAt, kConfirmAbove, kSameRate };
  Purpose purpose = Purpose::kBracket;
  double rate = 0;      // requests/s
  double window_s = 0;  // measurement window
  uint64_t seed = 0;
};
const char* PurposeName(ProbePlan::Purpose purpose);

// Looks for the highest rate of one mode at which attainment reaches a goal: doubles or halves the
// rate until one is met and one missed, bisects between them, then confirms 5 % below the capacity
// found and 5 % above it with fresh seeds. A rate is judged by the 95 % interval of its attainment:
// met or missed when that lies on one side of the goal; else it is probed again up to `longest_s`,
// and then judged by the value alone, and noted.
// A confirmation is a load of half of `longest_s`, and no shorter than any probe of that rate; the
// one above is long enough that it could refute. What is certain in it refutes the capacity, which
// is then searched again, twice at most. One that is uncertain and on the wrong side of the goal
// gets a second load within `longest_s`; if both together stay there, or if the capacity over all
// loads left the two rates, the search ends unconfirmed, and notes why.
// Pure: whoever owns it runs the loads. Any one thread.
class CapacitySearch {
 public:
  explicit CapacitySearch(const SearchOptions& options);

  // The next load to run, or nothing when the search has ended. The same until Add().
  std::optional<ProbePlan> Next() const { return next_; }
  // What the load planned by Next() gave: one outcome for each measured request, in order.
  void Add(std::vector<uint8_t> good);

  const std::vector<Probe>& probes() const { return probes_; }
  // The bracket: the highest rate held to be met (0: none) and the lowest held to be missed
  // (infinite: none).
  double low() const { return low_; }
  double high() const { return high_; }
  bool finished() const { return !next_; }
  // Fresh seeds met the goal below the capacity and missed it above, each at least by the value.
  bool confirmed() const { return confirmed_; }
  // What a reader should know: undecided rates, refuted confirmations, attainment that rose with
  // the rate, a capacity out of reach.
  std::vector<std::string> Notes() const;

  // Measurement windows that are still needed at least and at most, seconds.
  Interval WindowsLeft() const;

 private:
  using Purpose = ProbePlan::Purpose;
  void Plan(Purpose purpose, double rate, double window_s);
  void PlanNext();  // by the bracket
  void JudgeConfirmation();
  void PlanConfirmAbove();
  void EndConfirmed();
  // Ends the search.
  void EndUnconfirmed(std::string why);
  void Reopen();
  // The verdict over all probes at `rate`.
  Reached Judge(double rate, Share* share) const;
  double WindowsAt(double rate) const;
  double ProbeWindow(double rate) const;
  double LongestWindow(double rate) const;
  double ConfirmWindow(double rate) const;

  const SearchOptions options_;
  std::optional<ProbePlan> next_;
  std::vector<Probe> probes_;
  std::vector<double> windows_s_;  // of probes_
  double low_ = 0, high_;
  int reopened_ = 0;
  std::vector<uint8_t> confirming_;  // outcomes of the loads at the rate that is being confirmed
  double confirming_s_ = 0;          // their windows
  bool confirmed_ = false;
  std::vector<std::string> notes_;
};

}  // namespace baton
