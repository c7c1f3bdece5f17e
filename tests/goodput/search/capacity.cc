#include "tests/goodput/search/capacity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "common/base/check.h"

namespace baton {
namespace {

// The logistic curve is fitted to the rates within this factor of the rate at which attainment
// crosses the goal.
constexpr double kNear = 1.5;

struct Fit {
  double rate, weight, value;
};

// Changes the values so that they never rise with the rate. Neighbours whose values rise get their
// weighted mean instead (pool adjacent violators).
void PoolViolators(std::vector<Fit>* fits) {
  struct Pool {
    double weight, value;
    size_t count;
  };
  std::vector<Pool> pools;
  for (const Fit& fit : *fits) {
    pools.push_back({fit.weight, fit.value, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].value < pools.back().value) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& pool = pools.back();
      pool.value =
          (pool.value * pool.weight + last.value * last.weight) / (pool.weight + last.weight);
      pool.weight += last.weight;
      pool.count += last.count;
    }
  }
  size_t i = 0;
  for (const Pool& pool : pools) {
    for (size_t k = 0; k < pool.count; ++k) (*fits)[i++].value = pool.value;
  }
}

// Fits a logistic curve to `points`, which must be in order of rate. Returns the rate at which the
// curve falls to the goal, or nothing if it does not fall. Half a good and half a bad request are
// added at each rate. This keeps the slope finite if all requests are good at one rate and none at
// the next.
std::optional<double> LogisticCrossing(absl::Span<const Fit> points, double goal) {
  double at = 0, slope = 0;  // The curve is logit = at + slope * x.
  const double middle = std::log(points[points.size() / 2].rate);
  for (int step = 0; step < 25; ++step) {
    double sw = 0, swx = 0, swxx = 0, sz = 0, szx = 0;
    for (const Fit& point : points) {
      const double x = std::log(point.rate) - middle, n = point.weight + 1;
      const double share = (point.value * point.weight + 0.5) / n;
      const double p = 1 / (1 + std::exp(-std::clamp(at + slope * x, -30.0, 30.0)));
      const double w = std::max(n * p * (1 - p), 1e-9), residual = n * (share - p);
      sw += w;
      swx += w * x;
      swxx += w * x * x;
      sz += residual;
      szx += residual * x;
    }
    const double determinant = sw * swxx - swx * swx;
    if (determinant < 1e-12) return std::nullopt;
    const double d_at = std::clamp((swxx * sz - swx * szx) / determinant, -2.0, 2.0);
    const double d_slope = std::clamp((sw * szx - swx * sz) / determinant, -20.0, 20.0);
    at += d_at;
    slope += d_slope;
    if (std::abs(d_at) < 1e-9 && std::abs(d_slope) < 1e-9) break;
  }
  if (slope >= -1e-6) return std::nullopt;
  return std::exp(middle + (std::log(goal / (1 - goal)) - at) / slope);
}

// Rates between which the capacity certainly lies; by default 0 and infinity.
struct Bracket {
  double low = 0, high = INFINITY;
};

// Returns the rate at which attainment crosses the goal. `measured` has the attainment at each
// rate, in order of rate.
Capacity Crossing(const std::vector<Fit>& measured, double goal, const Bracket& bracket) {
  if (measured.empty()) return {};
  std::vector<Fit> fits = measured;
  PoolViolators(&fits);
  // Tolerates rounding errors of sums whose terms were added in another order.
  constexpr double kSlack = 1e-12;
  if (fits.front().value < goal - kSlack) {
    // Even the lowest rate misses the goal. Interpolates between this rate and rate 0, at which
    // attainment would be 1.
    return {.where = Capacity::Where::kBelow,
            .rate = fits.front().rate * (1 - goal) / (1 - fits.front().value)};
  }
  size_t next = 1;
  while (next < fits.size() && fits[next].value >= goal - kSlack) ++next;
  if (next == fits.size()) return {.where = Capacity::Where::kAbove, .rate = fits.back().rate};
  const double part = (fits[next - 1].value - goal) / (fits[next - 1].value - fits[next].value);
  double rate = fits[next - 1].rate + std::max(0.0, part) * (fits[next].rate - fits[next - 1].rate);
  size_t begin = 0, end = measured.size();
  while (begin + 1 < next && measured[begin].rate < rate / kNear) ++begin;
  while (end > next + 1 && measured[end - 1].rate > rate * kNear) --end;
  const auto smooth = LogisticCrossing(absl::MakeSpan(measured).subspan(begin, end - begin), goal);
  if (smooth) rate = std::clamp(*smooth, measured[begin].rate, measured[end - 1].rate);
  if (bracket.low < bracket.high) rate = std::clamp(rate, bracket.low, bracket.high);
  return {.where = Capacity::Where::kWithin, .rate = rate};
}

// Returns the highest rate that is certainly met and the lowest rate that is certainly missed.
Bracket BracketOf(const std::vector<RatePoint>& points, double goal) {
  Bracket bracket;
  for (const RatePoint& point : points) {
    if (point.share.interval.low >= goal) bracket.low = point.rate;
    if (point.share.interval.high < goal && bracket.high == INFINITY) bracket.high = point.rate;
  }
  return bracket;
}

// Returns the share of good requests at each rate, over all probes of this rate. `good(i)` returns
// the number of good requests of probe i, and the weight with which this probe counts.
template <typename Good>
std::vector<Fit> FitsOf(absl::Span<const Probe> probes, const Good& good) {
  std::map<double, Fit> by_rate;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (probes[i].good.empty()) continue;
    Fit& fit = by_rate.try_emplace(probes[i].rate, Fit{probes[i].rate, 0, 0}).first->second;
    const auto [count, times] = good(i);
    fit.weight += times * probes[i].good.size();
    fit.value += times * count;
  }
  std::vector<Fit> fits;
  for (const auto& [rate, fit] : by_rate)
    fits.push_back({rate, fit.weight, fit.value / fit.weight});
  return fits;
}

std::vector<Fit> MeasuredFits(absl::Span<const Probe> probes) {
  return FitsOf(probes, [&](size_t i) {
    const double good = std::count_if(probes[i].good.begin(), probes[i].good.end(),
                                      [](uint8_t one) { return one != 0; });
    return std::pair(good, 1.0);
  });
}

}  // namespace

const char* WhereName(Capacity::Where where) {
  switch (where) {
    case Capacity::Where::kUnknown:
      return "unknown";
    case Capacity::Where::kBelow:
      return "below";
    case Capacity::Where::kWithin:
      return "within";
    case Capacity::Where::kAbove:
      return "above";
  }
  return "";
}

std::vector<RatePoint> RatePoints(absl::Span<const Probe> probes) {
  std::map<double, std::vector<uint8_t>> by_rate;
  for (const Probe& probe : probes) {
    if (probe.good.empty()) continue;
    std::vector<uint8_t>& all = by_rate[probe.rate];
    all.insert(all.end(), probe.good.begin(), probe.good.end());
  }
  std::vector<Fit> fits = MeasuredFits(probes);
  PoolViolators(&fits);
  std::vector<RatePoint> points;
  for (const auto& [rate, outcomes] : by_rate) {
    points.push_back({rate, ShareOf(outcomes), fits[points.size()].value});
  }
  return points;
}

Capacities::Capacities(const std::vector<std::vector<Probe>>& modes, double goal, int resamples,
                       uint64_t seed)
    : resampled_(modes.size()) {
  BATON_CHECK(goal > 0 && goal < 1) << goal;
  std::map<uint64_t, size_t> blocks;  // Block length per arrival log, the same for all modes.
  std::vector<std::vector<BlockSample>> samples(modes.size());
  for (size_t mode = 0; mode < modes.size(); ++mode) {
    for (const Probe& probe : modes[mode]) {
      samples[mode].emplace_back(probe.good);
      size_t& block = blocks[probe.seed];
      block = std::max(block, samples[mode].back().block());
    }
  }
  for (size_t mode = 0; mode < modes.size(); ++mode) {
    const std::vector<Probe>& probes = modes[mode];
    const Bracket bracket = BracketOf(RatePoints(probes), goal);
    const std::vector<Fit> measured = MeasuredFits(probes);
    capacities_.push_back(Crossing(measured, goal, bracket));
    if (capacities_.back().where == Capacity::Where::kUnknown) continue;
    Capacity& capacity = capacities_.back();
    const bool below = capacity.where == Capacity::Where::kBelow;
    if (below) capacity.rate = measured.front().rate;
    std::vector<double> rates;
    for (int resample = 0; resample < resamples; ++resample) {
      const auto drawn = [&](size_t i) {
        // The seed of the random generator depends on the arrival log and on the number of the
        // resample, but not on the mode. So in one resample, modes that ran the same arrivals
        // resample the same requests, and the ratio of their capacities can be computed.
        Draws draws(Draws(seed ^ Draws(probes[i].seed).Next()).Next() + resample);
        const double times = draws.Exponential();
        return std::pair(samples[mode][i].Draw(&draws, blocks.at(probes[i].seed)), times);
      };
      const Capacity one = Crossing(FitsOf(probes, drawn), goal, {});
      const bool at_least = one.where == Capacity::Where::kAbove;
      // If a resample misses the goal at all measured rates, its rate is only a guess. The guess
      // may widen the interval of a capacity between two rates. But if the capacity itself is below
      // all rates, the guess is raised to the lowest measured rate, because a mere guess must not
      // become a bound.
      resampled_[mode].push_back({below ? std::max(one.rate, capacity.rate) : one.rate, at_least});
      rates.push_back(at_least ? INFINITY : resampled_[mode].back().rate);
    }
    if (below) {
      capacity.interval = {0, MiddleOf(std::move(rates)).high};
    } else if (capacity.where == Capacity::Where::kAbove) {
      for (double& rate : rates) rate = std::min(rate, capacity.rate);
      capacity.interval = {MiddleOf(std::move(rates)).low, INFINITY};
    } else {
      capacity.interval = MiddleOf(std::move(rates));
    }
  }
}

Ratio Capacities::RatioOf(size_t mode, size_t base) const {
  using Where = Capacity::Where;
  if (resampled_[mode].empty() || resampled_[base].empty() || capacities_[base].rate <= 0)
    return {};
  const Where where = capacities_[mode].where, base_where = capacities_[base].where;
  std::vector<double> ratios;
  for (size_t i = 0; i < resampled_[mode].size(); ++i) {
    const Resample &one = resampled_[mode][i], &other = resampled_[base][i];
    if (other.rate <= 0) continue;
    // In a resample, a capacity may be only a lower bound. If only one of the two capacities is
    // such a bound, the ratio counts as infinite or 0. If both are, the ratio of the bounds is
    // used. The capacities over all loads can be bounds, too: the code after this loop then opens
    // one end of the interval.
    const bool higher = one.at_least && where != Where::kAbove;
    const bool base_higher = other.at_least && base_where != Where::kAbove;
    ratios.push_back(higher && !base_higher   ? INFINITY
                     : base_higher && !higher ? 0
                                              : one.rate / other.rate);
  }
  Ratio ratio{capacities_[mode].rate / capacities_[base].rate, MiddleOf(std::move(ratios))};
  if (where == Where::kAbove || base_where == Where::kBelow) ratio.interval.high = INFINITY;
  if (where == Where::kBelow || base_where == Where::kAbove) ratio.interval.low = 0;
  return ratio;
}

}  // namespace baton
