#include "common/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

uint64_t MinWeight(float min_p) {
  return std::max<uint64_t>(
      1, static_cast<uint64_t>(std::ceil(static_cast<double>(min_p) * kWholeWeight)));
}

uint64_t MassOf(float top_p, uint64_t sum) {
  const double mass = static_cast<double>(top_p) * static_cast<double>(sum);
  auto units = static_cast<uint64_t>(mass);
  if (static_cast<double>(units) < mass) ++units;
  return std::clamp<uint64_t>(units, 1, sum);
}

double LogOfSum(float largest, uint64_t sum) {
  return largest + std::log(static_cast<double>(sum) / kWholeWeight);
}

absl::Status UnsoundLogits(int position) {
  return absl::InternalError(
      absl::StrCat("logits of position ", position, " hold NaN or +infinity"));
}

absl::Status NoLogits(int position) {
  return absl::InternalError(absl::StrCat("logits of position ", position, " are all -infinity"));
}

absl::Status NoTokenLeftToSample(int position) {
  return absl::InvalidArgumentError(
      absl::StrCat("position ", position,
                   " has no token left to sample: bad_words and min_tokens exclude all of them"));
}

absl::StatusOr<SampledToken> Sampler::Sample(absl::Span<float> logits,
                                             const SamplingOptions& options, int position,
                                             int generated, const TokenHistory* history) {
  BATON_CHECK(history != nullptr || !options.LooksBack()) << "no history at position " << position;
  Best best;
  RETURN_IF_ERROR(ScanAsGiven(logits, position, &best));
  SampledToken token = {.position = position};
  double normaliser = 0;
  if (options.logprobs) normaliser = AddAlternatives(logits, best.logit, *options.logprobs, &token);
  Edit(logits, options, generated, history);
  absl::Status status;
  if (!edits_.empty()) status = Scan(logits, position, &best);
  if (status.ok()) {
    token.id = options.temperature == 0 ? best.id : Sample(logits, best.logit, options, position);
  }
  Restore(logits);
  RETURN_IF_ERROR(status);
  if (options.logprobs) token.logprob = static_cast<float>(logits[token.id] - normaliser);
  return token;
}

absl::StatusOr<SampledToken> Sampler::Score(absl::Span<const float> logits, TokenId id,
                                            int position, int alternatives) {
  BATON_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size()) << "token " << id;
  Best best;
  RETURN_IF_ERROR(ScanAsGiven(logits, position, &best));
  SampledToken token = {.id = id, .position = position};
  const double normaliser = AddAlternatives(logits, best.logit, alternatives, &token);
  token.logprob = static_cast<float>(logits[id] - normaliser);
  return token;
}

// Adds the `count` most likely tokens to token->top. Returns the logarithm of the sum of e^logit
// over all tokens.
double Sampler::AddAlternatives(absl::Span<const float> logits, float largest, size_t count,
                                SampledToken* token) {
  sums_.resize(maxima_.size());
  kernels_.sums(logits.data(), logits.size(), largest, 1, sums_.data());
  uint64_t sum = 0;
  for (const uint64_t block : sums_) sum += block;
  const double normaliser = LogOfSum(largest, sum);
  FindTop(logits, count);
  std::sort(candidates_.begin(), candidates_.end());
  for (const Candidate& one : candidates_) {
    token->top.push_back({one.id, static_cast<float>(one.logit - normaliser)});
  }
  return normaliser;
}

absl::Status Sampler::ScanAsGiven(absl::Span<const float> logits, int position, Best* best) {
  const absl::Status status = Scan(logits, position, best);
  return absl::IsInvalidArgument(status) ? NoLogits(position) : status;
}

// Fills maxima_ and sets `best` to the most likely token.
absl::Status Sampler::Scan(absl::Span<const float> logits, int position, Best* best) {
  maxima_.resize(LogitBlocks(logits.size()));
  if (!kernels_.maxima(logits.data(), logits.size(), maxima_.data())) {
    return UnsoundLogits(position);
  }
  const auto block = std::max_element(maxima_.begin(), maxima_.end());
  if (*block == -kInfinity) return NoTokenLeftToSample(position);
  size_t i = (block - maxima_.begin()) * kLogitBlock;
  while (logits[i] != *block) ++i;
  *best = {static_cast<TokenId>(i), *block};
  return absl::OkStatus();
}

void Sampler::Edit(absl::Span<float> logits, const SamplingOptions& options, int generated,
                   const TokenHistory* history) {
  edits_.clear();
  const auto change = [&](TokenId id, const auto& changed) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) return;
    edits_.emplace_back(id, logits[id]);
    logits[id] = changed(logits[id]);
  };
  for (const auto& [id, bias] : options.logit_bias) {
    change(id, [bias = bias](float logit) { return logit + bias; });
  }
  if (const float penalty = options.repetition_penalty; penalty != 1) {
    for (const TokenId id : history->distinct()) {
      change(id, [penalty](float logit) { return logit > 0 ? logit / penalty : logit * penalty; });
    }
  }
  if (options.frequency_penalty != 0 || options.presence_penalty != 0) {
    for (const TokenHistory::Count& count : history->generated()) {
      change(count.id, [&](float logit) {
        const float times = static_cast<float>(count.times);
        return (logit - options.frequency_penalty * times) - options.presence_penalty;
      });
    }
  }
  const auto ban = [](float) { return -kInfinity; };
  for (const std::vector<TokenId>& word : options.bad_words) {
    const auto before = absl::MakeConstSpan(word).first(word.size() - 1);
    if (before.empty() || history->EndsWith(before)) change(word.back(), ban);
  }
  if (generated < options.min_tokens) {
    for (const TokenId id : options.stop_tokens) change(id, ban);
  }
}

// Undoes the edits in reverse order, because a token may have been edited more than once.
void Sampler::Restore(absl::Span<float> logits) {
  for (auto edit = edits_.rbegin(); edit != edits_.rend(); ++edit)
    logits[edit->first] = edit->second;
}

// Fills candidates_ with the `count` best tokens, ordered by id and without weights. Tokens at
// -infinity are included only if there are too few others.
void Sampler::FindTop(absl::Span<const float> logits, size_t count) {
  candidates_.clear();
  count = std::min(count, logits.size());
  if (count == 0) return;
  // Takes the `count`th largest of the blocks' max logits as the threshold. So at least `count`
  // tokens have a logit of at least `threshold`.
  float threshold = -kInfinity;
  if (count <= maxima_.size()) {
    thresholds_.assign(maxima_.begin(), maxima_.end());
    std::nth_element(thresholds_.begin(), thresholds_.begin() + (count - 1), thresholds_.end(),
                     std::greater<float>());
    threshold = thresholds_[count - 1];
  }
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold) continue;
    const size_t end = std::min(logits.size(), (block + 1) * kLogitBlock);
    for (size_t i = block * kLogitBlock; i < end; ++i) {
      if (logits[i] >= threshold) candidates_.push_back({0, logits[i], static_cast<TokenId>(i)});
    }
  }
  if (candidates_.size() > count) {
    // std::nth_element changes the order of its input, and candidates_ must stay sorted by id. So
    // it works on a copy, which costs less than sorting candidates_ again.
    ordered_ = candidates_;
    std::nth_element(ordered_.begin(), ordered_.begin() + (count - 1), ordered_.end());
    const Candidate last = ordered_[count - 1];
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                     [&](const Candidate& one) { return last < one; }),
                      candidates_.end());
  }
}

TokenId Sampler::Sample(absl::Span<const float> logits, float largest,
                        const SamplingOptions& options, int position) {
  const uint64_t uniform =
      UniformBitsAt(options.seed, static_cast<uint64_t>(position), options.answer_index);
  const double scale = 1.0 / options.temperature;
  const size_t vocab = logits.size();
  const size_t top_k = options.top_k > 0 ? std::min<size_t>(options.top_k, vocab) : vocab;
  if (top_k == vocab && options.top_p >= 1 && options.min_p == 0) {
    return SampleFromAll(logits, largest, scale, uniform);
  }
  // From here on, candidates_ holds all tokens that may be kept, by id, with their weights. The
  // best token's weight is kWholeWeight.
  uint64_t sum = 0;
  if (top_k < vocab) {
    FindTop(logits, top_k);
    for (Candidate& one : candidates_) {
      one.weight = TokenWeight((static_cast<double>(one.logit) - largest) * scale);
      sum += one.weight;
    }
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                     [](const Candidate& one) { return one.weight == 0; }),
                      candidates_.end());
  } else if (options.top_p < 1) {
    sums_.resize(maxima_.size());
    kernels_.sums(logits.data(), vocab, largest, scale, sums_.data());
    for (const uint64_t block : sums_) sum += block;
    // All tokens with a probability below (1 - top_p) / vocab add up to less than 1 - top_p. So the
    // tokens above this probability reach top_p without them. The factor 0.5 leaves a margin for
    // rounding.
    CollectAbove(logits, largest, scale,
                 static_cast<uint64_t>(0.5 * (1.0 - options.top_p) * static_cast<double>(sum) /
                                       static_cast<double>(vocab)));
  } else {
    CollectAbove(logits, largest, scale, MinWeight(options.min_p));
  }
  const Candidate last = options.top_p < 1
                             ? CutAtMass(MassOf(options.top_p, sum))
                             : Candidate{0, -kInfinity, std::numeric_limits<TokenId>::max()};
  return SampleFromCandidates(last, MinWeight(options.min_p), uniform);
}

TokenId Sampler::SampleFromAll(absl::Span<const float> logits, float largest, double scale,
                               uint64_t uniform) {
  sums_.resize(maxima_.size());
  kernels_.sums(logits.data(), logits.size(), largest, scale, sums_.data());
  uint64_t sum = 0;
  for (const uint64_t block : sums_) sum += block;
  uint64_t unit = SampledUnit(uniform, sum);
  size_t block = 0;
  while (unit >= sums_[block]) unit -= sums_[block++];
  const size_t first = block * kLogitBlock;
  std::array<uint64_t, kLogitBlock> weights;
  kernels_.weights(logits.data() + first, std::min(kLogitBlock, logits.size() - first), largest,
                   scale, weights.data());
  size_t i = 0;
  while (unit >= weights[i]) unit -= weights[i++];
  return static_cast<TokenId>(first + i);
}

// Fills candidates_ with all tokens whose weight is at least `lowest`, ordered by id.
void Sampler::CollectAbove(absl::Span<const float> logits, float largest, double scale,
                           uint64_t lowest) {
  candidates_.clear();
  lowest = std::max<uint64_t>(lowest, 1);
  // Skips blocks whose best token weighs less than `lowest`. Weights are rounded to nearest, so 0.5
  // is subtracted from `lowest`. The 0.01 covers the rounding error of log.
  const double min = (std::log((static_cast<double>(lowest) - 0.5) / kWholeWeight) - 0.01) / scale;
  std::array<uint64_t, kLogitBlock> weights;
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (static_cast<double>(maxima_[block]) - largest < min) continue;
    const size_t first = block * kLogitBlock;
    const size_t n = std::min(kLogitBlock, logits.size() - first);
    kernels_.weights(logits.data() + first, n, largest, scale, weights.data());
    for (size_t i = 0; i < n; ++i) {
      if (weights[i] < lowest) continue;
      candidates_.push_back({weights[i], logits[first + i], static_cast<TokenId>(first + i)});
    }
  }
}

// Orders candidates_ from best to worst and takes the fewest whose weights add up to at least
// `mass`. Returns the last candidate taken.
Sampler::Candidate Sampler::CutAtMass(uint64_t mass) {
  // Up to kFew candidates are sorted at once. A larger number is divided into bins by logit, and
  // only the bin that holds the last candidate to take is sorted.
  constexpr size_t kFew = 256;
  constexpr size_t kBins = 1024;
  uint64_t sum = 0;
  if (candidates_.size() <= kFew) {
    ordered_ = candidates_;
  } else {
    float max = candidates_[0].logit, min = max;
    for (const Candidate& one : candidates_) {
      max = std::max(max, one.logit);
      min = std::min(min, one.logit);
    }
    const double per_bin = max > min ? (kBins - 1) / (static_cast<double>(max) - min) : 0;
    const auto bin_of = [&](float logit) {
      return static_cast<size_t>((static_cast<double>(max) - logit) * per_bin);
    };
    std::array<uint64_t, kBins> bins = {};
    for (const Candidate& one : candidates_) bins[bin_of(one.logit)] += one.weight;
    size_t bin = 0;
    while (sum + bins[bin] < mass) sum += bins[bin++];
    ordered_.clear();
    for (const Candidate& one : candidates_) {
      if (bin_of(one.logit) == bin) ordered_.push_back(one);
    }
  }
  if (!std::is_sorted(ordered_.begin(), ordered_.end())) {
    std::sort(ordered_.begin(), ordered_.end());
  }
  size_t last = 0;
  while (sum + ordered_[last].weight < mass) sum += ordered_[last++].weight;
  return ordered_[last];
}

// Samples one of the candidates whose weight is at least `min_weight` and that are `last` or are
// preferred to it.
TokenId Sampler::SampleFromCandidates(const Candidate& last, uint64_t min_weight,
                                      uint64_t uniform) {
  const auto kept = [&](const Candidate& one) { return !(last < one) && one.weight >= min_weight; };
  uint64_t sum = 0;
  for (const Candidate& one : candidates_) sum += kept(one) ? one.weight : 0;
  uint64_t unit = SampledUnit(uniform, sum);
  for (const Candidate& one : candidates_) {
    if (!kept(one)) continue;
    if (unit < one.weight) return one.id;
    unit -= one.weight;
  }
  BATON_CHECK(false) << "the best token is always kept";
  return -1;
}

}  // namespace baton
