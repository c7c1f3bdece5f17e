#include "common/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "common/sampling/philox.h"
#include "common/sampling/token_history.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Expected values published with the generator (Random123, kat_vectors).
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
  double sum = 0, min = 1, max = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = UniformAt(42, i);
    sum += u;
    min = std::min(min, u);
    max = std::max(max, u);
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_GE(min, 0);
  EXPECT_LT(min, 1e-4);
  EXPECT_GT(max, 1 - 1e-4);
  EXPECT_LT(max, 1);
  EXPECT_NE(UniformAt(1, 2), UniformAt(2, 1));
}

absl::StatusOr<SampledToken> SampleOf(std::vector<float> logits, const SamplingOptions& options,
                                      int position, int generated,
                                      const TokenHistory* history = nullptr) {
  Sampler sampler;
  return sampler.Sample(absl::MakeSpan(logits), options, position, generated, history);
}

TokenId Sampled(const std::vector<float>& logits, const SamplingOptions& options, int position = 7,
                int generated = 100, const TokenHistory* history = nullptr) {
  return SampleOf(logits, options, position, generated, history).value().id;
}

SamplingOptions At(float temperature, uint64_t seed = 1) {
  SamplingOptions options;
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

TEST(SamplerTest, GreedyTiesGoToTheLowestId) {
  EXPECT_EQ(Sampled({1, 3, 3, 2, 3}, At(0)), 1);
  EXPECT_EQ(Sampled({0, -0.0f}, At(0)), 0);
  EXPECT_EQ(Sampled({-kInfinity, -5}, At(0)), 1);
}

TEST(SamplerTest, GreedyLooksAtTheLogitsAlone) {
  SamplingOptions options = At(0);
  options.top_k = 1;
  options.top_p = 0.1f;
  options.min_p = 1;
  for (int seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    EXPECT_EQ(Sampled({1, 2, 9, 8}, options, seed), 2);
  }
}

TEST(SamplerTest, TheSampleDependsOnSeedAndPositionAlone) {
  std::vector<float> flat(1000, 0.5f);
  EXPECT_EQ(Sampled(flat, At(1, 9), 3), Sampled(flat, At(1, 9), 3, 5));
  int same_position = 0, same_seed = 0;
  for (int i = 0; i < 100; ++i) {
    same_position += Sampled(flat, At(1, 9), 3) == Sampled(flat, At(1, 10 + i), 3);
    same_seed += Sampled(flat, At(1, 9), 3) == Sampled(flat, At(1, 9), 4 + i);
  }
  EXPECT_LE(same_position, 2);
  EXPECT_LE(same_seed, 2);
  // This value must never change: a new value would change the answers of running requests when a
  // worker is upgraded.
  EXPECT_EQ(Sampled(flat, At(1, 9), 3), static_cast<TokenId>(UniformAt(9, 3) * 1000));
}

TEST(SamplerTest, TiesAtTheEdgeKeepTheLowestIds) {
  SamplingOptions options = At(1);
  options.top_k = 2;
  std::vector<int> seen(5);
  for (int p = 0; p < 200; ++p) ++seen[Sampled({1, 1, 1, 1, 1}, options, p)];
  EXPECT_GT(seen[0], 60);
  EXPECT_GT(seen[1], 60);
  EXPECT_EQ(seen[0] + seen[1], 200);
  options.top_k = 0;
  options.top_p = 0.55f;
  std::fill(seen.begin(), seen.end(), 0);
  for (int p = 0; p < 200; ++p) ++seen[Sampled({1, 1, 1, 1, 1}, options, p)];
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 200);
  EXPECT_GT(std::min({seen[0], seen[1], seen[2]}), 30);
}

TEST(SamplerTest, ExtremeTemperaturesAndTinyTopP) {
  SamplingOptions options = At(1e-30f);
  EXPECT_EQ(Sampled({1, 2, 1.999f}, options), 1);
  options.temperature = 100;
  options.top_p = 1e-6f;
  EXPECT_EQ(Sampled({1, 2, 1.999f}, options), 1);
  options.top_p = 1;
  options.min_p = 1;
  EXPECT_EQ(Sampled({1, 2, 1.999f}, options), 1);
  options.top_k = 1 << 30;
  EXPECT_EQ(Sampled({1, 2, 1.999f}, options), 1);
}

TEST(SamplerTest, TheFirstAnswerSamplesAsTheOnlyOneAndTheOthersDoNot) {
  std::vector<float> flat(1000, 0.5f);
  SamplingOptions first = At(1, 9), second = first;
  second.answer_index = 1;
  int same = 0;
  for (int p = 0; p < 100; ++p) {
    EXPECT_EQ(Sampled(flat, first, p), static_cast<TokenId>(UniformAt(9, p) * 1000));
    same += Sampled(flat, first, p) == Sampled(flat, second, p);
  }
  EXPECT_LE(same, 2);
}

TEST(LogitKernelsTest, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 30);
  size_t count = 0;
  const LogitKernels* const all = AllLogitKernels(&count);
  for (const size_t n : {1, 7, 8, 9, 64, 65, 100, 127, 128, 1000}) {
    std::vector<float> logits(n);
    for (float& logit : logits) logit = normal(random);
    if (n > 5) logits[5] = -kInfinity;
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (const double scale : {1.0, 1.25, 1e-2, 1e30}) {
      std::vector<uint64_t> weights(n);
      for (size_t i = 0; i < n; ++i) {
        weights[i] = TokenWeight((static_cast<double>(logits[i]) - largest) * scale);
        const double exact =
            std::exp((static_cast<double>(logits[i]) - largest) * scale) * kWholeWeight;
        EXPECT_NEAR(static_cast<double>(weights[i]), exact, 0.501 + 2e-13 * exact);
      }
      EXPECT_EQ(*std::max_element(weights.begin(), weights.end()), kWholeWeight);
      for (size_t k = 0; k < count; ++k) {
        std::vector<float> maxima(LogitBlocks(n));
        std::vector<uint64_t> sums(LogitBlocks(n));
        EXPECT_TRUE(all[k].maxima(logits.data(), n, maxima.data()));
        all[k].sums(logits.data(), n, largest, scale, sums.data());
        for (size_t block = 0; block < sums.size(); ++block) {
          const size_t first = block * kLogitBlock, rows = std::min(kLogitBlock, n - first);
          std::vector<uint64_t> own(rows);
          all[k].weights(logits.data() + first, rows, largest, scale, own.data());
          uint64_t sum = 0;
          for (size_t i = 0; i < rows; ++i) {
            EXPECT_EQ(own[i], weights[first + i]) << all[k].name;
            sum += own[i];
          }
          EXPECT_EQ(sums[block], sum) << all[k].name;
          EXPECT_EQ(maxima[block],
                    *std::max_element(logits.begin() + first, logits.begin() + first + rows));
        }
      }
    }
    for (size_t k = 0; k < count; ++k) {
      std::vector<float> maxima(LogitBlocks(n));
      for (const float unsound : {kNaN, -kNaN, kInfinity}) {
        std::vector<float> bad = logits;
        bad[n - 1] = unsound;
        EXPECT_FALSE(all[k].maxima(bad.data(), n, maxima.data())) << all[k].name << " of " << n;
      }
    }
  }
}

TEST(SamplerTest, PartsOfAMassInNumbers) {
  EXPECT_EQ(MinWeight(0), 1u);
  EXPECT_EQ(MinWeight(1e-20f), 1u);
  EXPECT_EQ(MinWeight(0.5f), kWholeWeight / 2);
  EXPECT_EQ(MinWeight(1), kWholeWeight);
  EXPECT_EQ(MassOf(0.5f, 7), 4u);
  EXPECT_EQ(MassOf(0.5f, 8), 4u);
  EXPECT_EQ(MassOf(1e-30f, 8), 1u);
  EXPECT_EQ(MassOf(0.99999994f, 8), 8u);
  EXPECT_LE(MassOf(0.99999994f, uint64_t{1} << 63), uint64_t{1} << 63);
  EXPECT_EQ(SampledUnit(0, 10), 0u);
  EXPECT_EQ(SampledUnit((uint64_t{1} << 53) - 1, 10), 9u);
  EXPECT_EQ(SampledUnit((uint64_t{1} << 53) - 1, uint64_t{1} << 63), (uint64_t{1} << 63) - 1024);
}

// A token that is less than 2^-40 times as likely as the best one is never sampled.
TEST(SamplerTest, WhatIsTooRareIsNotSampled) {
  std::vector<float> logits(3000, -27.8f);
  logits[1234] = 0;
  Sampler sampler;
  for (int p = 0; p < 300; ++p) {
    SamplingOptions options = At(1, p);
    options.top_k = p % 3 == 0 ? 100 : 0;
    options.top_p = p % 3 == 1 ? 0.99999994f : 1;
    EXPECT_EQ(sampler.Sample(absl::MakeSpan(logits), options, p, 0)->id, 1234);
  }
}

TEST(SamplerTest, PenaltiesInNumbers) {
  const std::vector<TokenId> tokens = {1, 2, 3, 3};  // the first two are the prompt
  const TokenHistory history(tokens, 2);
  const std::vector<float> logits = {3, 6, -1, 4, 3.9f};
  SamplingOptions options = At(0);
  options.repetition_penalty = 2;  // logits become 3, 3, -2, 2, 3.9
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 4);
  options = At(0);
  options.presence_penalty = 2;  // only for answer tokens: token 1 stays best
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 1);
  options.logit_bias = {{1, -100}};  // logits become 3, -94, -1, 2, 3.9
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 4);
  options = At(0);
  options.logit_bias = {{1, -100}};
  options.frequency_penalty = -0.5f;  // token 3 came twice: its logit becomes 5
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 3);
  options.frequency_penalty = 0.04f;  // the logit of token 3 becomes 3.92
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 3);
  options.frequency_penalty = 0.06f;  // the logit of token 3 becomes 3.88
  EXPECT_EQ(Sampled(logits, options, 4, 2, &history), 4);
}

TEST(SamplerTest, ABadWordBansItsLastTokenWhereTheOthersStand) {
  const std::vector<TokenId> tokens = {9, 1, 2};
  const TokenHistory history(tokens, 2);  // the bad word begins in the prompt
  const std::vector<float> logits = {0, 1, 2, 3};
  SamplingOptions options = At(0);
  options.bad_words = {{1, 2, 3}};
  EXPECT_EQ(Sampled(logits, options, 3, 1, &history), 2);
  options.bad_words = {{2, 2, 3}, {9, 1, 3}, {7, 9, 1, 2, 3}};
  EXPECT_EQ(Sampled(logits, options, 3, 1, &history), 3);
  options.bad_words = {{3}, {2}, {500}};  // words of one token need no history
  EXPECT_FALSE(options.LooksBack());
  EXPECT_EQ(Sampled(logits, options, 3, 1), 1);
  options.bad_words = {{0}, {1}, {2}, {3}};
  const auto none = SampleOf(logits, options, 3, 1);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(none.status().message(), HasSubstr("position 3 has no token left"));
}

TEST(SamplerDeathTest, WhatLooksBackNeedsAHistory) {
  SamplingOptions options = At(0);
  options.presence_penalty = 1;
  EXPECT_DEATH(SampleOf({1, 2}, options, 3, 1).IgnoreError(), "no history at position 3");
}

TEST(TokenHistoryTest, LongWordsAreRememberedAcrossLongAnswers) {
  std::mt19937 random(2);
  std::vector<TokenId> tokens(3000);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % 50);
  TokenHistory history(absl::MakeConstSpan(tokens).first(10), 5);
  for (size_t n = 10; n < tokens.size(); ++n) {
    history.Append(tokens[n]);
    const auto last = absl::MakeConstSpan(tokens).first(n + 1).last(
        std::min(n + 1, SamplingOptions::kMaxBadWordTokens));
    if (n % 97 == 0) {
      EXPECT_TRUE(history.EndsWith(last)) << n;
      std::vector<TokenId> other(last.begin(), last.end());
      other.front() = 50;
      EXPECT_FALSE(history.EndsWith(other)) << n;
    }
  }
  EXPECT_EQ(history.distinct().size(), 50u);
  int generated = 0;
  for (const TokenHistory::Count& count : history.generated()) generated += count.times;
  EXPECT_EQ(generated, 2995);
}

TEST(SamplerTest, LogprobsAreOfTheLogitsAsGiven) {
  SamplingOptions options = At(0.1f);
  options.top_k = 1;
  options.logprobs = 3;
  options.min_tokens = 5;
  options.stop_tokens = {2};
  const std::vector<float> logits = {1, 2, 3, 2, -kInfinity};
  const SampledToken token = SampleOf(logits, options, 11, 0).value();
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
  SamplingOptions options;
  EXPECT_FALSE(SampleOf({1, 2}, options, 0, 0)->logprob);
  options.logprobs = 0;
  EXPECT_TRUE(SampleOf({1, 2}, options, 0, 0)->logprob);
  EXPECT_TRUE(SampleOf({1, 2}, options, 0, 0)->top.empty());
  options.logprobs = 20;
  EXPECT_EQ(SampleOf({1, 2}, options, 0, 0)->top.size(), 2u);
}

TEST(SamplerTest, MinTokensKeepsStopTokensOut) {
  SamplingOptions options = At(0);
  options.min_tokens = 2;
  options.stop_tokens = {1, 99};
  EXPECT_EQ(Sampled({1, 5, 3}, options, 7, 0), 2);
  EXPECT_EQ(Sampled({1, 5, 3}, options, 7, 1), 2);
  EXPECT_EQ(Sampled({1, 5, 3}, options, 7, 2), 1);
  options.temperature = 1;
  for (int p = 0; p < 100; ++p) EXPECT_NE(Sampled({1, 5, 3}, options, p, 0), 1);
}

TEST(SamplerTest, UnsoundLogitsAreAStatus) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{1, kNaN, 2}, {kNaN}, {kInfinity, 0}, {5, -kNaN}}) {
      const auto token = SampleOf(logits, At(temperature), 3, 0);
      EXPECT_EQ(token.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(token.status().message(), HasSubstr("position 3"));
    }
    EXPECT_EQ(SampleOf({-kInfinity}, At(temperature), 3, 0).status().code(),
              absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace baton
