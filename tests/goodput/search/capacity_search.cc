#include "tests/goodput/search/capacity_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace baton {
namespace {

// Two loads confirm the capacity that a search has found. These are their rates, as multiples of
// the capacity.
constexpr double kBelow = 0.95, kAbove = 1.05;
constexpr int kMaxReopened = 2;

std::string RateText(double rate) { return absl::StrFormat("%.4g requests/s", rate); }

std::string ShareText(const Share& share) {
  return absl::StrFormat("%.1f %% (%.1f to %.1f) of %d", 100 * share.value,
                         100 * share.interval.low, 100 * share.interval.high, share.count);
}

Reached ReachedBy(const Share& share, double goal) {
  if (share.interval.low >= goal) return Reached::kMet;
  if (share.interval.high < goal) return Reached::kMissed;
  return Reached::kUndecided;
}

// Returns the smallest number of requests that can show a rate to be met: if all of these requests
// are good, the goal is certainly met. Fewer requests can't show this, however good they are.
// If n of n requests are good, Wilson's interval begins at n / (n + z^2), where z^2 is 3.8415.
double MinToBeMet(double goal) { return 3.8415 * goal / (1 - goal); }

}  // namespace

const char* PurposeName(ProbePlan::Purpose purpose) {
  switch (purpose) {
    case ProbePlan::Purpose::kBracket:
      return "bracket";
    case ProbePlan::Purpose::kBisect:
      return "bisect";
    case ProbePlan::Purpose::kLengthen:
      return "lengthen";
    case ProbePlan::Purpose::kConfirmAt:
      return "confirm";
    case ProbePlan::Purpose::kConfirmAbove:
      return "confirm above";
    case ProbePlan::Purpose::kSameRate:
      return "same rate";
  }
  return "";
}

CapacitySearch::CapacitySearch(const SearchOptions& options)
    : options_(options), high_(std::numeric_limits<double>::infinity()) {
  BATON_CHECK(options.goal > 0 && options.goal < 1 && options.first_rate > 0 &&
              options.resolution > 0 && options.probe_s > 0);
  const double rate = std::clamp(options.first_rate, options.min_rate, options.max_rate);
  Plan(Purpose::kBracket, rate, ProbeWindow(rate));
}

double CapacitySearch::ProbeWindow(double rate) const {
  return std::max(options_.probe_s, options_.min_requests / rate);
}

double CapacitySearch::LongestWindow(double rate) const {
  return std::max(options_.longest_s, ProbeWindow(rate));
}

double CapacitySearch::ConfirmWindow(double rate) const {
  return std::max(ProbeWindow(rate), LongestWindow(rate) / 2);
}

void CapacitySearch::Plan(Purpose purpose, double rate, double window_s) {
  next_ = ProbePlan{purpose, rate, window_s, options_.seed + probes_.size()};
}

Reached CapacitySearch::Judge(double rate, Share* share) const {
  std::vector<uint8_t> all;
  for (const Probe& probe : probes_) {
    if (probe.rate == rate) all.insert(all.end(), probe.good.begin(), probe.good.end());
  }
  *share = ShareOf(all);
  return ReachedBy(*share, options_.goal);
}

double CapacitySearch::WindowsAt(double rate) const {
  double sum = 0;
  for (size_t i = 0; i < probes_.size(); ++i) {
    if (probes_[i].rate == rate) sum += windows_s_[i];
  }
  return sum;
}

void CapacitySearch::Add(std::vector<uint8_t> good) {
  BATON_CHECK(next_.has_value());
  const ProbePlan done = *next_;
  probes_.push_back({done.rate, done.seed, std::move(good)});
  windows_s_.push_back(done.window_s);
  if (done.purpose == Purpose::kConfirmAt || done.purpose == Purpose::kConfirmAbove) {
    JudgeConfirmation();
    return;
  }
  Share share;
  const Reached reached = Judge(done.rate, &share);
  if (reached == Reached::kUndecided) {
    const double had = WindowsAt(done.rate), longest = LongestWindow(done.rate);
    if (had * (1 + 1e-9) < longest) {
      Plan(Purpose::kLengthen, done.rate, std::min(had, longest - had));
      return;
    }
    notes_.push_back(absl::StrCat("undecided at ", RateText(done.rate), ": ", ShareText(share),
                                  ", judged by the value"));
  }
  (share.count > 0 && share.value >= options_.goal ? low_ : high_) = done.rate;
  PlanNext();
}

void CapacitySearch::JudgeConfirmation() {
  const bool above = next_->purpose == Purpose::kConfirmAbove;
  const double rate = next_->rate;
  const std::vector<uint8_t>& good = probes_.back().good;
  confirming_.insert(confirming_.end(), good.begin(), good.end());
  confirming_s_ += next_->window_s;
  const Share share = ShareOf(confirming_);
  const Reached reached = ReachedBy(share, options_.goal);
  if (!above && reached == Reached::kMissed) {
    notes_.push_back(absl::StrCat(RateText(rate), " was not confirmed by a fresh seed"));
    high_ = rate;
    low_ = 0;  // Lower rates may also have been met only by luck.
    Reopen();
    return;
  }
  if (above && reached == Reached::kMet) {
    notes_.push_back(absl::StrCat(RateText(rate), ", above the capacity found, was met too"));
    low_ = rate;
    if (high_ <= rate) high_ = std::numeric_limits<double>::infinity();
    Reopen();
    return;
  }
  const bool met = share.count > 0 && share.value >= options_.goal;
  const bool could_refute =
      !above || reached == Reached::kMissed || share.count >= MinToBeMet(options_.goal);
  if (met != above && could_refute) {
    if (above) {
      EndConfirmed();
    } else {
      PlanConfirmAbove();
    }
    return;
  }
  if (confirming_s_ + next_->window_s <= LongestWindow(rate) * (1 + 1e-9)) {
    Plan(next_->purpose, rate, next_->window_s);
    return;
  }
  EndUnconfirmed(absl::StrCat("fresh seeds left undecided ", RateText(rate), ", 5 % ",
                              above ? "above" : "below",
                              " the capacity found: ", ShareText(share)));
}

void CapacitySearch::PlanConfirmAbove() {
  const double rate = next_->rate / kBelow * kAbove;
  if (rate > options_.max_rate) {
    EndUnconfirmed(absl::StrCat("5 % above the capacity found is ", RateText(rate),
                                ", above the highest rate that may be tried, ",
                                RateText(options_.max_rate)));
    return;
  }
  // Asks for more requests than are needed, because by chance fewer may arrive than the rate says.
  const double min = MinToBeMet(options_.goal), asked = min + 2 * std::sqrt(min);
  if (asked / rate > LongestWindow(rate)) {
    EndUnconfirmed(absl::StrFormat(
        "5 %% above the capacity found was not tried: a load that could show %.4g %% to be met "
        "takes %.0f requests, %.0f s at %s, and the longest for one rate is %.0f s",
        100 * options_.goal, std::ceil(asked), std::ceil(asked / rate), RateText(rate),
        LongestWindow(rate)));
    return;
  }
  confirming_.clear();
  confirming_s_ = 0;
  Plan(Purpose::kConfirmAbove, rate, std::max(ConfirmWindow(rate), asked / rate));
}

void CapacitySearch::EndConfirmed() {
  const double above = next_->rate, below = above / kAbove * kBelow;
  const double rate = Capacities({probes_}, options_.goal, 0).of(0).rate;
  if (rate < below || rate > above) {
    EndUnconfirmed(
        absl::StrFormat("fresh seeds met %s and missed %s, but over all loads the "
                        "capacity is %s",
                        RateText(below), RateText(above), RateText(rate)));
    return;
  }
  confirmed_ = true;
  next_.reset();
}

void CapacitySearch::EndUnconfirmed(std::string why) {
  notes_.push_back(absl::StrCat("not confirmed: ", why));
  next_.reset();
}

void CapacitySearch::Reopen() {
  if (++reopened_ > kMaxReopened) {
    notes_.push_back(
        absl::StrCat("opened again ", kMaxReopened, " times, the search ended unconfirmed"));
    next_.reset();
    return;
  }
  PlanNext();
}

void CapacitySearch::PlanNext() {
  // After a refuted confirmation the capacity is near, so the steps are small.
  const double stride = reopened_ > 0 ? 1.1 : 2;
  if (high_ == std::numeric_limits<double>::infinity()) {
    if (low_ >= options_.max_rate) {
      notes_.push_back(absl::StrCat("the goal is still reached at the highest rate allowed, ",
                                    RateText(options_.max_rate)));
      next_.reset();
      return;
    }
    const double rate = std::min(low_ * stride, options_.max_rate);
    Plan(Purpose::kBracket, rate, ProbeWindow(rate));
  } else if (low_ == 0) {
    if (high_ <= options_.min_rate) {
      notes_.push_back(absl::StrCat("the goal is missed even at the lowest rate allowed, ",
                                    RateText(options_.min_rate)));
      next_.reset();
      return;
    }
    const double rate = std::max(high_ / stride, options_.min_rate);
    Plan(Purpose::kBracket, rate, ProbeWindow(rate));
  } else if (high_ > low_ * (1 + options_.resolution)) {
    const double rate = std::sqrt(low_ * high_);
    Plan(Purpose::kBisect, rate, ProbeWindow(rate));
  } else {
    const double rate = kBelow * Capacities({probes_}, options_.goal, 0).of(0).rate;
    confirming_.clear();
    confirming_s_ = 0;
    Plan(Purpose::kConfirmAt, rate, ConfirmWindow(rate));
  }
}

std::vector<std::string> CapacitySearch::Notes() const {
  std::vector<std::string> notes = notes_;
  const std::vector<RatePoint> points = RatePoints(probes_);
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      if (points[j].share.interval.low > points[i].share.interval.high) {
        notes.push_back(absl::StrCat("not monotonous: ", ShareText(points[i].share), " at ",
                                     RateText(points[i].rate), ", but ", ShareText(points[j].share),
                                     " at ", RateText(points[j].rate)));
      }
    }
  }
  return notes;
}

Interval CapacitySearch::WindowsLeft() const {
  if (!next_) return {0, 0};
  const double probe = ProbeWindow(next_->rate), longest = LongestWindow(next_->rate);
  const double confirm = ConfirmWindow(next_->rate);
  const bool at = next_->purpose == Purpose::kConfirmAt;
  if (at || next_->purpose == Purpose::kConfirmAbove) {
    const double min = next_->window_s + (at ? confirm : 0);
    return {min, std::max(min, longest - confirming_s_ + (at ? longest : 0))};
  }
  const bool bracketed = low_ > 0 && high_ < std::numeric_limits<double>::infinity();
  const double wide = bracketed ? high_ / low_ : 2;
  const double halvings =
      std::max(0.0, std::ceil(std::log2(std::log(wide) / std::log(1 + options_.resolution))));
  // A bracket is a rate that is met and a higher rate that is missed. To find one takes at least
  // one or two more probes, and up to about four more than that. Near the goal, the first probe of
  // a rate usually does not decide it. So the max has the longest window for up to three rates.
  const double min = (bracketed         ? 0
                      : probes_.empty() ? 2
                                        : 1) *
                         probe +
                     halvings * probe + 2 * confirm;
  return {min, min + (bracketed ? 0 : 4) * probe + std::min(3.0, halvings + 1) * (longest - probe) +
                   2 * (longest - confirm)};
}

}  // namespace baton
