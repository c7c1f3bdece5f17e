#include "common/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/sampling/philox.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// e^x for x <= 0, 0 below -708: x = k ln 2 + r, |r| <= ln 2 / 2, a polynomial in r, times 2^k. Adds
// and multiplies in one order, so every machine gets the same bits; relative error below 1e-13,
// which is far below what a float logit can tell apart.
double ExpNegative(double x) {
  if (!(x > -708)) return 0;
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer
  const double k = (x * kLog2E + kRound) - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(k) + 1023) << 52);
}

struct Best {
  TokenId id = -1;
  float logit = -kInfinity;
  bool sound = true;  // neither NaN nor +infinity anywhere
};

// One pass. The lowest id among equals; id -1 when every logit is -infinity.
Best FindBest(absl::Span<const float> logits) {
  Best best;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (logit <= best.logit) continue;
    if (!(logit < kInfinity)) {
      best.sound = false;
      break;
    }
    best.logit = logit;
    best.id = static_cast<TokenId>(i);
  }
  return best;
}

double LogSumExp(absl::Span<const float> logits, float largest) {
  double sum = 0;
  for (const float logit : logits) sum += ExpNegative(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

}  // namespace

absl::StatusOr<SampledToken> Sampler::Sample(absl::Span<const float> logits,
                                             const SamplingOptions& options, int position,
                                             int generated) {
  const Best best = FindBest(logits);
  if (!best.sound) {
    return absl::InternalError(
        absl::StrCat("logits of position ", position, " hold NaN or +infinity"));
  }
  absl::Span<const float> allowed = logits;
  Best best_allowed = best;
  if (generated < options.min_tokens && !options.stop_tokens.empty()) {
    masked_.assign(logits.begin(), logits.end());
    for (const TokenId id : options.stop_tokens) {
      if (id >= 0 && static_cast<size_t>(id) < masked_.size()) masked_[id] = -kInfinity;
    }
    allowed = masked_;
    best_allowed = FindBest(allowed);
  }
  if (best_allowed.id < 0) {
    return absl::InternalError(absl::StrCat("position ", position, " has no token to draw from"));
  }
  SampledToken token;
  token.position = position;
  token.id = options.temperature == 0 ? best_allowed.id
                                      : Draw(allowed, best_allowed.logit, options, position);
  if (options.logprobs) {
    const double normaliser = LogSumExp(logits, best.logit);
    const auto logprob = [&](TokenId id) {
      return static_cast<float>(static_cast<double>(logits[id]) - normaliser);
    };
    token.logprob = logprob(token.id);
    const size_t top = std::min<size_t>(*options.logprobs, logits.size());
    // A heap whose front is the worst of the best so far.
    candidates_.clear();
    for (size_t i = 0; top > 0 && i < logits.size(); ++i) {
      const Candidate candidate = {logits[i], static_cast<TokenId>(i)};
      if (candidates_.size() == top) {
        if (!(candidate < candidates_.front())) continue;
        std::pop_heap(candidates_.begin(), candidates_.end());
        candidates_.pop_back();
      }
      candidates_.push_back(candidate);
      std::push_heap(candidates_.begin(), candidates_.end());
    }
    std::sort_heap(candidates_.begin(), candidates_.end());
    for (const Candidate& candidate : candidates_) {
      token.top.push_back({candidate.id, logprob(candidate.id)});
    }
  }
  return token;
}

TokenId Sampler::Draw(absl::Span<const float> logits, float largest, const SamplingOptions& options,
                      int position) {
  const double u = UniformAt(options.seed, static_cast<uint64_t>(position));
  const double inverse_temperature = 1.0 / options.temperature;
  const auto weight = [&](float logit) {
    return ExpNegative((static_cast<double>(logit) - largest) * inverse_temperature);
  };
  const size_t vocab = logits.size();
  const size_t top_k = options.top_k > 0 ? std::min<size_t>(options.top_k, vocab) : vocab;
  weights_.clear();
  candidates_.clear();

  if (top_k == vocab && options.top_p >= 1) {
    // Nothing needs an order: weights by id.
    double sum = 0;
    weights_.resize(vocab);
    for (size_t i = 0; i < vocab; ++i) {
      double w = weight(logits[i]);
      if (w < options.min_p) w = 0;  // the best one's weight is 1
      weights_[i] = w;
      sum += w;
    }
    double target = u * sum;
    TokenId last = 0;
    for (size_t i = 0; i < vocab; ++i) {
      if (weights_[i] == 0) continue;
      last = static_cast<TokenId>(i);
      if (target < weights_[i]) break;
      target -= weights_[i];
    }
    return last;
  }

  // Only as many as are needed come off a heap in order, instead of sorting the vocabulary. Logits
  // that can't be in the nucleus stay out of it: all tokens whose probability is below (1 - top_p)
  // / vocab hold less than 1 - top_p together.
  double sum = 0;
  double least = 0;
  if (top_k == vocab) {
    weights_.resize(vocab);
    for (size_t i = 0; i < vocab; ++i) sum += weights_[i] = weight(logits[i]);
    least = 0.5 * (1.0 - options.top_p) * sum / static_cast<double>(vocab);
  }
  for (size_t i = 0; i < vocab; ++i) {
    if (logits[i] == -kInfinity || (least > 0 && weights_[i] < least)) continue;
    candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  // The heap's front must be the first in order, so compare the other way round.
  const auto after = [](const Candidate& a, const Candidate& b) { return b < a; };
  std::make_heap(candidates_.begin(), candidates_.end(), after);
  auto heap_end = candidates_.end();  // behind it the taken ones, first taken last
  weights_.clear();
  const auto take = [&] {
    std::pop_heap(candidates_.begin(), heap_end, after);
    --heap_end;
    weights_.push_back(weight(heap_end->logit));
    return weights_.back();
  };
  size_t kept = 0;
  if (top_k < vocab) {
    while (weights_.size() < top_k && heap_end != candidates_.begin()) sum += take();
    double mass = 0;
    while (kept < weights_.size() && (kept == 0 || mass < options.top_p * sum)) {
      mass += weights_[kept++];
    }
  } else {
    double mass = 0;
    while (heap_end != candidates_.begin() && (kept == 0 || mass < options.top_p * sum)) {
      mass += take();
      ++kept;
    }
  }
  while (kept > 1 && (weights_[kept - 1] < options.min_p || weights_[kept - 1] == 0)) --kept;
  double target = 0;
  for (size_t i = 0; i < kept; ++i) target += weights_[i];
  target *= u;
  size_t chosen = 0;
  while (chosen + 1 < kept && target >= weights_[chosen]) target -= weights_[chosen++];
  return candidates_[candidates_.size() - 1 - chosen].id;
}

}  // namespace baton
