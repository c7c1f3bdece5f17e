#include "common/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "common/sampling/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Answers published with the generator (Random123, kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, UniformsFillTheUnitInterval) {
  double sum = 0, least = 1, most = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = UniformAt(42, i);
    sum += u;
    least = std::min(least, u);
    most = std::max(most, u);
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_GE(least, 0);
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  EXPECT_LT(most, 1);
  EXPECT_NE(UniformAt(1, 2), UniformAt(2, 1));
}

TokenId Drawn(const std::vector<float>& logits, const SamplingOptions& options, int position = 7,
              int generated = 100) {
  Sampler sampler;
  return sampler.Sample(logits, options, position, generated).value().id;
}

SamplingOptions At(float temperature, uint64_t seed = 1) {
  SamplingOptions options;
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

// The same rules written plainly: sort everything, cut, draw. Ids in order of preference.
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
  while (kept.back().second < options.min_p) kept.pop_back();
  sum = 0;
  for (const auto& [id, weight] : kept) sum += weight;
  for (auto& [id, weight] : kept) weight /= sum;
  return kept;
}

TEST(SamplerTest, GreedyTiesGoToTheLowestId) {
  EXPECT_EQ(Drawn({1, 3, 3, 2, 3}, At(0)), 1);
  EXPECT_EQ(Drawn({0, -0.0f}, At(0)), 0);
  EXPECT_EQ(Drawn({-kInfinity, -5}, At(0)), 1);
}

TEST(SamplerTest, GreedyLooksAtTheLogitsAlone) {
  SamplingOptions options = At(0);
  options.top_k = 1;
  options.top_p = 0.1f;
  options.min_p = 1;
  for (int seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    EXPECT_EQ(Drawn({1, 2, 9, 8}, options, seed), 2);
  }
}

TEST(SamplerTest, TheDrawDependsOnSeedAndPositionAlone) {
  std::vector<float> flat(1000, 0.5f);
  EXPECT_EQ(Drawn(flat, At(1, 9), 3), Drawn(flat, At(1, 9), 3, 5));
  int same_position = 0, same_seed = 0;
  for (int i = 0; i < 100; ++i) {
    same_position += Drawn(flat, At(1, 9), 3) == Drawn(flat, At(1, 10 + i), 3);
    same_seed += Drawn(flat, At(1, 9), 3) == Drawn(flat, At(1, 9), 4 + i);
  }
  EXPECT_LE(same_position, 2);
  EXPECT_LE(same_seed, 2);
  // Fixed for good: another value here means that running requests change when a worker is
  // upgraded.
  EXPECT_EQ(Drawn(flat, At(1, 9), 3), static_cast<TokenId>(UniformAt(9, 3) * 1000));
}

TEST(SamplerTest, TiesAtTheEdgeKeepTheLowestIds) {
  SamplingOptions options = At(1);
  options.top_k = 2;
  std::vector<int> seen(5);
  for (int p = 0; p < 200; ++p) ++seen[Drawn({1, 1, 1, 1, 1}, options, p)];
  EXPECT_GT(seen[0], 60);
  EXPECT_GT(seen[1], 60);
  EXPECT_EQ(seen[0] + seen[1], 200);
  options.top_k = 0;
  options.top_p = 0.55f;
  std::fill(seen.begin(), seen.end(), 0);
  for (int p = 0; p < 200; ++p) ++seen[Drawn({1, 1, 1, 1, 1}, options, p)];
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 200);
  EXPECT_GT(std::min({seen[0], seen[1], seen[2]}), 30);
}

TEST(SamplerTest, ExtremeTemperaturesAndTinyTopP) {
  SamplingOptions options = At(1e-30f);
  EXPECT_EQ(Drawn({1, 2, 1.999f}, options), 1);
  options.temperature = 100;
  options.top_p = 1e-6f;
  EXPECT_EQ(Drawn({1, 2, 1.999f}, options), 1);
  options.top_p = 1;
  options.min_p = 1;
  EXPECT_EQ(Drawn({1, 2, 1.999f}, options), 1);
  options.top_k = 1 << 30;
  EXPECT_EQ(Drawn({1, 2, 1.999f}, options), 1);
}

// For every combination of cuts: what is drawn follows the plain distribution (chi-square, fixed
// seeds), and nothing else is ever drawn.
TEST(SamplerTest, DrawsFollowThePlainDistribution) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  Sampler sampler;
  for (const int top_k : {0, 1, 7, 40}) {
    for (const float top_p : {1.0f, 0.9f, 0.5f}) {
      for (const float min_p : {0.0f, 0.05f}) {
        std::vector<float> logits(64);
        for (float& logit : logits) logit = normal(random);
        logits[3] = -kInfinity;
        SamplingOptions options = At(0.8f, 1000 + top_k);
        options.top_k = top_k;
        options.top_p = top_p;
        options.min_p = min_p;
        const auto plain = PlainDistribution(logits, options);
        std::vector<double> expected(64);
        for (const auto& [id, probability] : plain) expected[id] = probability;
        std::vector<int> seen(64);
        constexpr int kDraws = 20000;
        for (int p = 0; p < kDraws; ++p) {
          ++seen[sampler.Sample(logits, options, p, 0).value().id];
        }
        double chi_square = 0, rare_expected = 0;
        int cells = 0, rare_seen = 0;
        for (int id = 0; id < 64; ++id) {
          if (expected[id] == 0) {
            EXPECT_EQ(seen[id], 0) << id;
            continue;
          }
          if (expected[id] * kDraws < 5) {
            rare_expected += expected[id] * kDraws;
            rare_seen += seen[id];
            continue;
          }
          const double difference = seen[id] - expected[id] * kDraws;
          chi_square += difference * difference / (expected[id] * kDraws);
          ++cells;
        }
        // Mean cells - 1, deviation sqrt(2 (cells - 1)): five deviations above is 1 in a million.
        const double freedom = std::max(cells - 1, 1);
        EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom))
            << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
        EXPECT_NEAR(rare_seen, rare_expected, 5 * std::sqrt(rare_expected) + 5);
      }
    }
  }
}

// A vocabulary of real size takes the paths that leave most of it out.
TEST(SamplerTest, LargeVocabularyKeepsExactlyThePlainSet) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(50000);
  for (float& logit : logits) logit = std::round(normal(random) * 8) / 8;  // many ties
  for (const auto& [top_k, top_p] : std::vector<std::pair<int, float>>{
           {0, 0.3f}, {0, 0.95f}, {50, 1.0f}, {50, 0.8f}, {5000, 0.99f}}) {
    SamplingOptions options = At(1);
    options.top_k = top_k;
    options.top_p = top_p;
    const auto plain = PlainDistribution(logits, options);
    Sampler sampler;
    for (int p = 0; p < 30; ++p) {
      // Inverse of the distribution function in order of preference.
      double target = UniformAt(options.seed, p);
      size_t i = 0;
      while (i + 1 < plain.size() && target >= plain[i].second) target -= plain[i++].second;
      EXPECT_EQ(sampler.Sample(logits, options, p, 0).value().id, plain[i].first);
    }
  }
}

TEST(SamplerTest, LogprobsAreOfTheLogitsAsGiven) {
  SamplingOptions options = At(0.1f);
  options.top_k = 1;
  options.logprobs = 3;
  options.min_tokens = 5;
  options.stop_tokens = {2};
  Sampler sampler;
  const std::vector<float> logits = {1, 2, 3, 2, -kInfinity};
  const SampledToken token = sampler.Sample(logits, options, 11, 0).value();
  EXPECT_EQ(token.id, 1);
  EXPECT_EQ(token.position, 11);
  const double sum = std::exp(1.0) + 2 * std::exp(2.0) + std::exp(3.0);
  EXPECT_NEAR(*token.logprob, 2 - std::log(sum), 1e-6);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].id, 2);
  EXPECT_NEAR(token.top[0].logprob, 3 - std::log(sum), 1e-6);
  EXPECT_EQ(token.top[1].id, 1);
  EXPECT_EQ(token.top[2].id, 3);
}

TEST(SamplerTest, LogprobsOnlyWhenAskedAndAtMostTheVocabulary) {
  Sampler sampler;
  SamplingOptions options;
  EXPECT_FALSE(sampler.Sample({1.f, 2.f}, options, 0, 0)->logprob);
  options.logprobs = 0;
  EXPECT_TRUE(sampler.Sample({1.f, 2.f}, options, 0, 0)->logprob);
  EXPECT_TRUE(sampler.Sample({1.f, 2.f}, options, 0, 0)->top.empty());
  options.logprobs = 20;
  EXPECT_EQ(sampler.Sample({1.f, 2.f}, options, 0, 0)->top.size(), 2u);
}

TEST(SamplerTest, MinTokensKeepsStopTokensOut) {
  SamplingOptions options = At(0);
  options.min_tokens = 2;
  options.stop_tokens = {1, 99};
  EXPECT_EQ(Drawn({1, 5, 3}, options, 7, 0), 2);
  EXPECT_EQ(Drawn({1, 5, 3}, options, 7, 1), 2);
  EXPECT_EQ(Drawn({1, 5, 3}, options, 7, 2), 1);
  options.temperature = 1;
  for (int p = 0; p < 100; ++p) EXPECT_NE(Drawn({1, 5, 3}, options, p, 0), 1);
}

TEST(SamplerTest, UnsoundLogitsAreAStatus) {
  Sampler sampler;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{1, kNaN, 2}, {kNaN}, {kInfinity, 0}, {5, -kNaN}}) {
      const auto token = sampler.Sample(logits, At(temperature), 3, 0);
      EXPECT_EQ(token.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(token.status().message(), HasSubstr("position 3"));
    }
    EXPECT_EQ(sampler.Sample({-kInfinity}, At(temperature), 3, 0).status().code(),
              absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace baton
