#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/goodput/search/capacity.h"

namespace baton {

struct SearchOptions {
  double goal = 0.9;         // Attainment that a rate must reach.
  double first_rate = 1;     // Requests/s at which the search for a bracket begins.
  double min_rate = 0.01;    // The search gives up below this rate.
  double max_rate = 1e4;     // The search gives up above this rate.
  double resolution = 0.03;  // The bracket is narrow enough when high <= low * (1 + resolution).
  double probe_s = 30;       // Measurement window of the first probe at a rate.
  double longest_s = 120;    // Max sum of the windows of all probes at one undecided rate.
  // Min number of requests that a probe offers. At low rates, windows longer than `probe_s` and
  // `longest_s` are used to reach this number.
  double min_requests = 50;
  uint64_t seed = 1;  // Seed of the first probe. Each further probe uses the next number.
};

enum class Reached { kUndecided, kMet, kMissed };

// The next load to run.
struct ProbePlan {
  enum class Purpose { kBracket, kBisect, kLengthen, kConfirmAt, kConfirmAbove, kSameRate };
  Purpose purpose = Purpose::kBracket;
  double rate = 0;      // In requests/s.
  double window_s = 0;  // Length of the measurement window.
  uint64_t seed = 0;
};
const char* PurposeName(ProbePlan::Purpose purpose);

// Searches for the highest rate of one mode at which attainment reaches a goal. It doubles or
// halves the rate until one rate is met and one is missed. Then it bisects between these rates.
// Then it confirms the capacity with fresh seeds, 5 % below and 5 % above.
//
// A rate is judged by the 95 % interval of its attainment: it is met if the interval lies above the
// goal, and missed if the interval lies below it. Else the rate is probed again, up to `longest_s`.
// After that, the attainment alone decides, and a note says so.
//
// A confirmation is a load of half of `longest_s`, and no shorter than any probe of its rate. The
// load above the capacity also has enough requests to show that this rate is met. After a
// confirmation:
// - If its interval contradicts the capacity, the search goes on, twice at most.
// - If only its attainment contradicts the capacity, there is a second load of this rate, within
//   `longest_s`. If both loads together still contradict it, the search ends unconfirmed, with a
//   note.
// - The search also ends unconfirmed if the capacity that follows from all loads is not between the
//   two confirmed rates.
//
// Pure logic: the owner runs the loads. Any one thread.
class CapacitySearch {
 public:
  explicit CapacitySearch(const SearchOptions& options);

  // Returns the next load to run, or nothing if the search has ended. The result stays the same
  // until Add().
  std::optional<ProbePlan> Next() const { return next_; }
  // Accepts the result of the load from Next(): one outcome for each measured request, in order.
  void Add(std::vector<uint8_t> good);

  const std::vector<Probe>& probes() const { return probes_; }
  // The highest rate judged as met (0: none), and the lowest rate judged as missed (infinite:
  // none).
  double low() const { return low_; }
  double high() const { return high_; }
  bool finished() const { return !next_; }
  // Returns true if loads with fresh seeds met the goal below the capacity and missed it above.
  // Only their attainment must be on the right side of the goal; its 95 % interval may contain the
  // goal.
  bool confirmed() const { return confirmed_; }
  // Returns notes for the reader: undecided rates, refuted confirmations, attainment that rose with
  // the rate, a capacity out of reach.
  std::vector<std::string> Notes() const;

  // Returns the min and max seconds of measurement windows that are still needed.
  Interval WindowsLeft() const;

 private:
  using Purpose = ProbePlan::Purpose;
  void Plan(Purpose purpose, double rate, double window_s);
  void PlanNext();  // Plans the next load from the bracket.
  void JudgeConfirmation();
  void PlanConfirmAbove();
  void EndConfirmed();
  // Ends the search.
  void EndUnconfirmed(std::string why);
  void Reopen();
  // Returns the verdict over all probes at `rate`, and their attainment in `*share`.
  Reached Judge(double rate, Share* share) const;
  double WindowsAt(double rate) const;
  double ProbeWindow(double rate) const;
  double LongestWindow(double rate) const;
  double ConfirmWindow(double rate) const;

  const SearchOptions options_;
  std::optional<ProbePlan> next_;
  std::vector<Probe> probes_;
  std::vector<double> windows_s_;  // Windows of probes_, in seconds.
  double low_ = 0, high_;
  int reopened_ = 0;
  std::vector<uint8_t> confirming_;  // Outcomes of the loads at the rate under confirmation.
  double confirming_s_ = 0;          // Sum of the windows of the loads in confirming_.
  bool confirmed_ = false;
  std::vector<std::string> notes_;
};

}  // namespace baton
