#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/sampler.h"
#include "common/sampling/token_history.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

SamplingOptions Tempered(float temperature, uint64_t seed = 1) {
  SamplingOptions options;
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

// Applies the same rules as Sampler, written plainly: changes the logits by bias, penalties and
// bans, looking at all tokens so far.
std::vector<float> PlainLogits(std::vector<float> logits, const SamplingOptions& options,
                               const std::vector<TokenId>& tokens, size_t prompt) {
  const size_t vocab = logits.size();
  for (const auto& [id, bias] : options.logit_bias) {
    if (static_cast<size_t>(id) < vocab) logits[id] += bias;
  }
  for (size_t id = 0; id < vocab; ++id) {
    const auto is_id = [id](TokenId token) { return token == static_cast<TokenId>(id); };
    if (std::any_of(tokens.begin(), tokens.end(), is_id)) {
      logits[id] = logits[id] > 0 ? logits[id] / options.repetition_penalty
                                  : logits[id] * options.repetition_penalty;
    }
    const auto times = std::count_if(tokens.begin() + prompt, tokens.end(), is_id);
    logits[id] -= options.frequency_penalty * static_cast<float>(times);
    if (times > 0) logits[id] -= options.presence_penalty;
  }
  for (const std::vector<TokenId>& word : options.bad_words) {
    bool matches = word.size() <= tokens.size() + 1;
    for (size_t i = 0; matches && i + 1 < word.size(); ++i) {
      matches = tokens[tokens.size() + 1 - word.size() + i] == word[i];
    }
    if (matches && static_cast<size_t>(word.back()) < vocab) logits[word.back()] = -kInfinite;
  }
  if (static_cast<int>(tokens.size() - prompt) < options.min_tokens) {
    for (const TokenId id : options.stop_tokens) {
      if (static_cast<size_t>(id) < vocab) logits[id] = -kInfinite;
    }
  }
  return logits;
}

// Sorts everything and applies temperature, top_k, top_p and min_p. Returns the tokens that are
// left, by id, with their probabilities.
std::vector<std::pair<TokenId, double>> PlainDistribution(const std::vector<float>& logits,
                                                          const SamplingOptions& options) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min<size_t>(order.size(), options.top_k));
  std::vector<std::pair<TokenId, double>> kept;
  double sum = 0;
  for (const TokenId id : order) {
    kept.emplace_back(
        id, std::exp((static_cast<double>(logits[id]) - logits[order[0]]) / options.temperature));
    sum += kept.back().second;
  }
  double mass = 0;
  size_t n = 0;
  while (n < kept.size() && mass < options.top_p * sum) mass += kept[n++].second;
  kept.resize(std::max<size_t>(n, 1));
  while (kept.back().second < options.min_p || kept.back().second == 0) kept.pop_back();
  std::sort(kept.begin(), kept.end());
  sum = 0;
  for (const auto& [id, weight] : kept) sum += weight;
  for (auto& [id, weight] : kept) weight /= sum;
  return kept;
}

// Samples a token from `plain`, a result of PlainDistribution, by inverting the distribution
// function at `u`.
TokenId PlainSample(const std::vector<std::pair<TokenId, double>>& plain, double u) {
  size_t i = 0;
  while (i + 1 < plain.size() && u >= plain[i].second) u -= plain[i++].second;
  return plain[i].first;
}

// Returns how far `seen` is from `expected`: the chi-square sum, converted to a normal variable of
// the same probability (Wilson & Hilferty 1931). Cells with an expected count below 5 are merged
// into one.
double ChiSquareDeviations(const std::vector<int>& seen, const std::vector<double>& expected) {
  double chi_square = 0, rare_expected = 0;
  int cells = 0, rare_seen = 0;
  const auto add = [&](double difference, double of) {
    chi_square += difference * difference / of;
    ++cells;
  };
  for (size_t i = 0; i < seen.size(); ++i) {
    if (expected[i] < 5) {
      rare_expected += expected[i];
      rare_seen += seen[i];
    } else {
      add(seen[i] - expected[i], expected[i]);
    }
  }
  if (rare_expected > 0) add(rare_seen - rare_expected, std::max(rare_expected, 5.0));
  const double freedom = std::max(cells - 1, 1);
  const double variance = 2 / (9 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - variance)) / std::sqrt(variance);
}
// A normal variable exceeds this many standard deviations with probability 1e-6.
constexpr double kOneInAMillion = 4.75;

// Checks for every combination of top_k, top_p and min_p that sampled tokens follow the
// distribution that PlainDistribution computes (chi-square, fixed seeds), and that no other token
// is ever sampled.
TEST(SamplerTest, SamplesFollowThePlainDistribution) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  Sampler sampler;
  for (const int top_k : {0, 1, 7, 40}) {
    for (const float top_p : {1.0f, 0.9f, 0.5f}) {
      for (const float min_p : {0.0f, 0.05f}) {
        std::vector<float> logits(64);
        for (float& logit : logits) logit = normal(random);
        logits[3] = -kInfinite;
        SamplingOptions options = Tempered(0.8f, 1000 + top_k);
        options.top_k = top_k;
        options.top_p = top_p;
        options.min_p = min_p;
        constexpr int kSamples = 20000;
        std::vector<double> expected(64);
        for (const auto& [id, probability] : PlainDistribution(logits, options)) {
          expected[id] = probability * kSamples;
        }
        std::vector<int> seen(64);
        for (int p = 0; p < kSamples; ++p) {
          ++seen[sampler.Sample(absl::MakeSpan(logits), options, p, 0).value().id];
        }
        for (int id = 0; id < 64; ++id) {
          if (expected[id] == 0) {
            EXPECT_EQ(seen[id], 0) << id;
          }
        }
        EXPECT_LT(ChiSquareDeviations(seen, expected), kOneInAMillion)
            << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
      }
    }
  }
}

// Checks that every pair of tokens is as frequent as two independent tokens would make it. The two
// tokens of a pair differ in position, answer index or seed, or in both position and answer index.
TEST(SamplerTest, SamplesAreIndependentAcrossPositionsAnswersAndSeeds) {
  constexpr int kSamples = 20000;
  std::vector<float> logits = {0.5f, 1.5f, -1, 0, 0.25f, 2, 1, -kInfinite};
  SamplingOptions options = Tempered(0.9f, 11);
  options.top_k = 6;
  options.top_p = 0.97f;
  const auto plain = PlainDistribution(logits, options);
  std::vector<double> probability(8);
  for (const auto& [id, p] : plain) probability[id] = p;
  ASSERT_EQ(plain.size(), 6u);
  Sampler sampler;
  const auto samples = [&](uint64_t seed, uint32_t index, int from) {
    SamplingOptions own = options;
    own.seed = seed;
    own.answer_index = index;
    std::vector<TokenId> ids;
    for (int p = from; p < from + kSamples; ++p) {
      ids.push_back(sampler.Sample(absl::MakeSpan(logits), own, p, 0).value().id);
    }
    return ids;
  };
  const std::vector<TokenId> base = samples(11, 0, 0);
  struct Other {
    const char* what;
    uint64_t seed;
    uint32_t index;
    int from;
  };
  for (const Other& other : {Other{"next position", 11, 0, 1},
                             {"position beyond all", 11, 0, kSamples},
                             {"answer 1", 11, 1, 0},
                             {"answer 63", 11, 63, 0},
                             {"answer 1, next position", 11, 1, 1},
                             {"seed 12", 12, 0, 0},
                             {"seed in the upper half", 11ull << 32, 0, 0}}) {
    const std::vector<TokenId> ids = samples(other.seed, other.index, other.from);
    std::vector<int> alone(8), together(64);
    std::vector<double> expected_alone(8), expected_together(64);
    for (int i = 0; i < kSamples; ++i) {
      ++alone[ids[i]];
      ++together[base[i] * 8 + ids[i]];
    }
    for (int a = 0; a < 8; ++a) {
      expected_alone[a] = probability[a] * kSamples;
      for (int b = 0; b < 8; ++b) {
        expected_together[a * 8 + b] = probability[a] * probability[b] * kSamples;
      }
    }
    EXPECT_LT(ChiSquareDeviations(alone, expected_alone), kOneInAMillion) << other.what;
    EXPECT_LT(ChiSquareDeviations(together, expected_together), kOneInAMillion) << other.what;
  }
}

// Checks the chi-square test itself. In one of ten pairs, the second token equals the first, and
// the test must find that the two tokens are not independent.
TEST(SamplerTest, ADependenceWouldBeSeen) {
  std::mt19937 random(3);
  std::vector<int> seen(64);
  for (int i = 0; i < 20000; ++i) {
    const int a = random() % 8;
    ++seen[a * 8 + (random() % 10 == 0 ? a : random() % 8)];
  }
  EXPECT_GT(ChiSquareDeviations(seen, std::vector<double>(64, 20000 / 64.0)), 5 * kOneInAMillion);
}

// In a vocabulary of real size, Sampler skips most tokens. It must still sample the same tokens as
// the plain implementation in this file.
TEST(SamplerTest, LargeVocabularyKeepsExactlyThePlainSet) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 3);
  for (const float grain : {8.0f, 1e6f}) {  // many ties, few ties
    std::vector<float> logits(50001);
    for (float& logit : logits) logit = std::round(normal(random) * grain) / grain;
    for (const auto& [top_k, top_p, min_p] :
         std::vector<std::tuple<int, float, float>>{{0, 0.3f, 0},
                                                    {0, 0.95f, 0},
                                                    {0, 0.999999f, 0},
                                                    {0, 1, 0.001f},
                                                    {0, 0.99f, 0.01f},
                                                    {0, 1, 0},
                                                    {50, 1.0f, 0},
                                                    {50, 0.8f, 0},
                                                    {781, 0.9f, 0},
                                                    {783, 1, 0},
                                                    {5000, 0.99f, 0.0001f}}) {
      SamplingOptions options = Tempered(1);
      options.top_k = top_k;
      options.top_p = top_p;
      options.min_p = min_p;
      const auto plain = PlainDistribution(logits, options);
      Sampler sampler;
      for (int p = 0; p < 20; ++p) {
        EXPECT_EQ(sampler.Sample(absl::MakeSpan(logits), options, p, 0)->id,
                  PlainSample(plain, UniformAt(options.seed, p)))
            << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
      }
    }
  }
}

// One token is likely, and a thousand others are equally unlikely. The set of tokens that top_p
// keeps ends among those others. Each of them is just likely enough that Sampler must not skip it
// as too rare.
TEST(SamplerTest, TheNucleusReachesIntoAFlatTail) {
  std::vector<float> logits(1001, 0);
  logits[500] = std::log(1000 / 0.075f * 0.925f);  // the other tokens have 7.5 % together
  SamplingOptions options = Tempered(1, 3);
  options.top_p = 0.95f;
  const auto plain = PlainDistribution(logits, options);
  EXPECT_NEAR(static_cast<double>(plain.size()), 1 + 1000 / 3.0, 2);
  Sampler sampler;
  int of_the_tail = 0;
  for (int p = 0; p < 2000; ++p) {
    const TokenId id = sampler.Sample(absl::MakeSpan(logits), options, p, 0)->id;
    EXPECT_EQ(id, PlainSample(plain, UniformAt(options.seed, p)));
    of_the_tail += id != 500;
  }
  EXPECT_GT(of_the_tail, 20);
}

// Compares Sampler under random combinations of all options with a plain implementation. Every
// instruction set must give the same bits.
TEST(SamplerTest, RandomOptionsGiveWhatThePlainRulesGive) {
  std::mt19937 random(20261121);
  const auto pick = [&](auto... values) {
    const std::array<std::common_type_t<decltype(values)...>, sizeof...(values)> all = {values...};
    return all[random() % all.size()];
  };
  size_t kernels = 0;
  const LogitKernels* const every = AllLogitKernels(&kernels);
  std::vector<Sampler> samplers;
  for (size_t i = 0; i < kernels; ++i) samplers.emplace_back(every[i]);
  int sampled = 0, edited = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const int vocab = pick(1, 2, 7, 8, 9, 63, 64, 65, 130, 400, 700);
    std::normal_distribution<float> normal(0, pick(0.5f, 3.0f, 20.0f));
    std::vector<float> logits(vocab);
    const float grain = pick(1e6f, 4.0f, 1.0f);
    for (float& logit : logits) logit = std::round(normal(random) * grain) / grain;
    for (int i = pick(0, 0, 0, 1, 5); i > 0; --i) logits[random() % vocab] = -kInfinite;
    const auto token = [&] { return static_cast<TokenId>(random() % (vocab + vocab / 8 + 1)); };

    SamplingOptions options = Tempered(pick(0.0f, 1e-3f, 0.7f, 1.0f, 1.0f, 5.0f), random());
    options.top_k = pick(0, 0, 1, 3, 40, 300, std::max(1, vocab - 1), 1000);
    options.top_p = pick(1.0f, 1.0f, 0.95f, 0.4f, 1e-6f, 0.999f);
    options.min_p = pick(0.0f, 0.0f, 0.02f, 0.5f, 1.0f);
    options.answer_index = pick(0, 0, 1, 63);
    if (random() % 2) options.repetition_penalty = pick(1.1f, 0.5f, 3.0f);
    if (random() % 2) options.frequency_penalty = pick(0.3f, -1.0f, 2.0f);
    if (random() % 2) options.presence_penalty = pick(0.7f, -2.0f);
    if (random() % 3 == 0) {
      std::map<TokenId, float> bias;
      for (int i = pick(1, 5, 30); i > 0; --i) bias[token()] = pick(-100.0f, 100.0f, 1.5f);
      options.logit_bias.assign(bias.begin(), bias.end());
    }
    std::vector<TokenId> tokens(pick(1, 2, 20, 200));
    for (TokenId& id : tokens) id = std::min(token(), pick(vocab, 3, 8));
    if (random() % 2) {
      for (int i = pick(1, 2, 10); i > 0; --i) {
        std::vector<TokenId> word(pick(1, 2, 3, 300));
        for (TokenId& id : word) id = token();
        // Copies the last of `tokens` into the banned word, so that the ban often applies.
        for (size_t k = 1; k < word.size() && k <= tokens.size() && random() % 8 != 0; ++k) {
          word[word.size() - 1 - k] = tokens[tokens.size() - k];
        }
        options.bad_words.push_back(word);
      }
    }
    options.min_tokens = pick(0, 0, 10);
    for (int i = pick(0, 1, 3); i > 0; --i) options.stop_tokens.push_back(token());
    if (random() % 4 == 0) options.logprobs = pick(0, 1, 20);

    const size_t prompt = 1 + random() % tokens.size();
    // The constructor counts the first `at_once` tokens, as after a restart of the sequence. Append
    // counts the other tokens one by one.
    const size_t at_once = prompt + random() % (tokens.size() - prompt + 1);
    TokenHistory history(absl::MakeConstSpan(tokens).first(at_once), static_cast<int>(prompt));
    for (size_t i = at_once; i < tokens.size(); ++i) history.Append(tokens[i]);

    const int position = static_cast<int>(tokens.size());
    const auto plain_logits = PlainLogits(logits, options, tokens, prompt);
    const bool nothing = *std::max_element(plain_logits.begin(), plain_logits.end()) == -kInfinite;
    const bool was_nothing = *std::max_element(logits.begin(), logits.end()) == -kInfinite;
    edited += plain_logits != logits;
    std::vector<float> given = logits;
    for (Sampler& sampler : samplers) {
      const auto token = sampler.Sample(absl::MakeSpan(given), options, position,
                                        position - static_cast<int>(prompt), &history);
      ASSERT_EQ(given, logits) << "round " << round;
      if (nothing) {
        ASSERT_EQ(token.status().code(),
                  was_nothing ? absl::StatusCode::kInternal : absl::StatusCode::kInvalidArgument);
        ++refused;
        continue;
      }
      ASSERT_TRUE(token.ok()) << "round " << round << ": " << token.status();
      if (options.temperature == 0) {
        const auto best = std::max_element(plain_logits.begin(), plain_logits.end());
        ASSERT_EQ(token->id, best - plain_logits.begin()) << "round " << round;
      } else {
        const double u = UniformAt(options.seed, position, options.answer_index);
        ASSERT_EQ(token->id, PlainSample(PlainDistribution(plain_logits, options), u))
            << "round " << round;
        ++sampled;
      }
      ASSERT_EQ(token->logprob.has_value(), options.logprobs.has_value());
      if (!options.logprobs) continue;
      double sum = 0;
      const float largest = *std::max_element(logits.begin(), logits.end());
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
      const double normaliser = largest + std::log(sum);
      const double bound = 1e-6 * (1 + std::abs(logits[token->id] - normaliser));
      ASSERT_NEAR(*token->logprob, logits[token->id] - normaliser, bound);
      ASSERT_EQ(token->top.size(), std::min<size_t>(*options.logprobs, logits.size()));
      std::vector<TokenId> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
      for (size_t i = 0; i < token->top.size(); ++i) ASSERT_EQ(token->top[i].id, order[i]);
      const auto scored = sampler.Score(logits, token->id, position, *options.logprobs);
      ASSERT_TRUE(scored.ok());
      ASSERT_EQ(scored->logprob, token->logprob);
      ASSERT_EQ(scored->top.size(), token->top.size());
    }
  }
  EXPECT_GT(sampled, 5000);
  EXPECT_GT(edited, 3000);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace baton
