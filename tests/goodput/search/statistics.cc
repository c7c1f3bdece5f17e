#include "tests/goodput/search/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"

namespace baton {

Interval WilsonInterval(double successes, double trials) {
  if (trials <= 0) return {0, 1};
  constexpr double z = 1.959963984540054;
  const double share = successes / trials;
  const double scale = 1 + z * z / trials;
  const double middle = (share + z * z / (2 * trials)) / scale;
  const double half =
      z / scale * std::sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials));
  return {std::clamp(middle - half, 0.0, share), std::clamp(middle + half, share, 1.0)};
}

double AutocorrelationTime(absl::Span<const uint8_t> outcomes) {
  const size_t n = outcomes.size();
  if (n < 20) return 1;
  double mean = 0;
  for (const uint8_t outcome : outcomes) mean += outcome != 0;
  mean /= n;
  const double variance = mean * (1 - mean);
  if (variance == 0) return 1;
  const auto correlation = [&](size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < n; ++i) {
      sum += ((outcomes[i] != 0) - mean) * ((outcomes[i + lag] != 0) - mean);
    }
    return sum / n / variance;
  };
  // The sum below counts the correlation at lag 0, which is 1, twice; the -1 corrects this.
  double time = -1;
  for (size_t lag = 0, stride = 2; lag + 1 < n / 2; lag += stride) {
    const double pair = correlation(lag) + correlation(lag + 1);
    if (pair <= 0) break;
    // Slow drift is correlated over very many lags, and adding all of them would take quadratic
    // time. So large lags are sampled, and each sampled lag also stands for its neighbours.
    stride = std::max<size_t>(2, lag / 64);
    time += pair * stride;
    if (time > n / 10.0) break;
  }
  return std::clamp(time, 1.0, n / 10.0);
}

Share ShareOf(absl::Span<const uint8_t> outcomes) {
  Share share{.interval = {0, 1}, .count = outcomes.size()};
  if (outcomes.empty()) return share;
  const double good =
      std::count_if(outcomes.begin(), outcomes.end(), [](uint8_t outcome) { return outcome != 0; });
  const double time = AutocorrelationTime(outcomes);
  share.value = good / outcomes.size();
  share.interval = WilsonInterval(good / time, outcomes.size() / time);
  return share;
}

double Quantile(absl::Span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double place = std::clamp(q, 0.0, 1.0) * (sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  if (below + 1 == sorted.size()) return sorted.back();
  // Two equal neighbours may be infinite, and interpolation between them would give NaN.
  if (place == below || sorted[below] == sorted[below + 1]) return sorted[below];
  return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}

Interval MiddleOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {Quantile(values, 0.025), Quantile(values, 0.975)};
}

BlockSample::BlockSample(absl::Span<const uint8_t> outcomes) : sums_(outcomes.size() + 1) {
  for (size_t i = 0; i < outcomes.size(); ++i) sums_[i + 1] = sums_[i] + (outcomes[i] != 0);
  const double wanted = std::ceil(2 * AutocorrelationTime(outcomes));
  block_ = std::max<size_t>(1, std::min<size_t>(wanted, outcomes.size() / 5));
}

double BlockSample::Draw(Draws* draws, size_t block) const {
  BATON_CHECK(size() > 0 && block > 0);
  uint32_t good = 0;
  for (size_t taken = 0; taken < size();) {
    const size_t begin = draws->Below(size());
    const size_t count = std::min({block, size() - taken, size()});
    const size_t end = begin + count;
    good += sums_[std::min(end, size())] - sums_[begin];
    if (end > size()) good += sums_[end - size()];
    taken += count;
  }
  return good;
}

uint64_t Draws::Next() {
  uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

uint64_t Draws::Below(uint64_t bound) {
  BATON_CHECK(bound > 0);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(Next()) * bound >> 64);
}

double Draws::Exponential() { return -std::log1p(-static_cast<double>(Next() >> 11) * 0x1p-53); }

}  // namespace baton
