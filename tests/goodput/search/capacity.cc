#include "tests/goodput/search/capacity.h"

#include <algorithm>
#include <map>

#include "common/base/check.h"

namespace baton {
namespace {

struct Fit {
  double rate, weight, value;
};

// Makes values never rise with the rate, by pooling neighbours that do.
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

// `fits` in order of rate, pooled.
Capacity Crossing(const std::vector<Fit>& fits, double goal) {
  if (fits.empty()) return {};
  constexpr double kSlack = 1e-12;  // of sums in another order
  if (fits.front().value < goal - kSlack) {
    return {.where = Capacity::Where::kBelow,
            .rate = fits.front().rate * (1 - goal) / (1 - fits.front().value)};
  }
  for (size_t i = 1; i < fits.size(); ++i) {
    if (fits[i].value >= goal - kSlack) continue;
    const double part = (fits[i - 1].value - goal) / (fits[i - 1].value - fits[i].value);
    return {.where = Capacity::Where::kWithin,
            .rate = fits[i - 1].rate + std::max(0.0, part) * (fits[i].rate - fits[i - 1].rate)};
  }
  return {.where = Capacity::Where::kAbove, .rate = fits.back().rate};
}

// Fits of probes whose good ones are counted by `good(i)`.
template <typename Good>
std::vector<Fit> FitsOf(absl::Span<const Probe> probes, const Good& good) {
  std::map<double, Fit> by_rate;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (probes[i].good.empty()) continue;
    Fit& fit = by_rate.try_emplace(probes[i].rate, Fit{probes[i].rate, 0, 0}).first->second;
    fit.weight += probes[i].good.size();
    fit.value += good(i);
  }
  std::vector<Fit> fits;
  for (const auto& [rate, fit] : by_rate)
    fits.push_back({rate, fit.weight, fit.value / fit.weight});
  PoolViolators(&fits);
  return fits;
}

double GoodOf(const Probe& probe) {
  return std::count_if(probe.good.begin(), probe.good.end(),
                       [](uint8_t good) { return good != 0; });
}

}  // namespace

std::vector<RatePoint> RatePoints(absl::Span<const Probe> probes) {
  std::map<double, std::vector<uint8_t>> by_rate;
  for (const Probe& probe : probes) {
    if (probe.good.empty()) continue;
    std::vector<uint8_t>& all = by_rate[probe.rate];
    all.insert(all.end(), probe.good.begin(), probe.good.end());
  }
  const std::vector<Fit> fits = FitsOf(probes, [&](size_t i) { return GoodOf(probes[i]); });
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
  std::map<uint64_t, size_t> blocks;  // by arrival log: one length for all modes
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
    capacities_.push_back(
        Crossing(FitsOf(probes, [&](size_t i) { return GoodOf(probes[i]); }), goal));
    if (capacities_.back().where == Capacity::Where::kUnknown) continue;
    for (int resample = 0; resample < resamples; ++resample) {
      const auto drawn = [&](size_t i) {
        // The state depends on the log and the resample alone, so that modes stay paired.
        Draws draws(Draws(seed ^ Draws(probes[i].seed).Next()).Next() + resample);
        return samples[mode][i].Draw(&draws, blocks.at(probes[i].seed));
      };
      resampled_[mode].push_back(Crossing(FitsOf(probes, drawn), goal).rate);
    }
    capacities_.back().interval = MiddleOf(resampled_[mode]);
  }
}

Ratio Capacities::RatioOf(size_t mode, size_t base) const {
  if (resampled_[mode].empty() || resampled_[base].empty() || capacities_[base].rate <= 0)
    return {};
  std::vector<double> ratios;
  for (size_t i = 0; i < resampled_[mode].size(); ++i) {
    if (resampled_[base][i] > 0) ratios.push_back(resampled_[mode][i] / resampled_[base][i]);
  }
  return {capacities_[mode].rate / capacities_[base].rate, MiddleOf(std::move(ratios))};
}

}  // namespace baton
