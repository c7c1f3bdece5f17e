#include "kernels/cuda/step_samples.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/sampling/sampler.h"
#include "gtest/gtest.h"
#include "kernels/cuda/small_decoder.h"

namespace baton {
namespace {

// Sampling options for the tests below: greedy, random, or with many options, depending on `id`.
SamplingOptions SomeSampling(int id) {
  SamplingOptions options;
  options.seed = 100 + id / 2;
  options.answer_index = id % 2;
  options.logprobs = id % 3 - 1 < 0 ? std::nullopt : std::optional<int>(id % 3);
  if (id % 4 == 0) return options;
  options.temperature = 0.5f + id;
  if (id % 4 == 2) options.top_k = 7;
  if (id % 4 == 3) {
    options.top_p = 0.9f;
    options.logit_bias = {{3, 4.0f}, {5, -2.0f}};
    options.frequency_penalty = 0.5f;
    options.repetition_penalty = 1.5f;
    options.stop_tokens = {1, 2, 30};
    options.min_tokens = 4;
  }
  return options;
}

SampleOptions SampleOf(const SamplingOptions& options, int id, int position,
                       const TokenHistory* history) {
  return {.temperature = options.temperature,
          .top_p = options.top_p,
          .top_k = options.top_k,
          .min_p = options.min_p,
          .seed = options.seed,
          .answer_index = options.answer_index,
          .position = position,
          .logit_bias = options.logit_bias,
          .stop_tokens = options.stop_tokens,
          .min_tokens = options.min_tokens,
          .generated = position - 1,
          .alternatives = options.logprobs.value_or(-1),
          .sequence = options.LooksBack() ? id + 1u : 0u,
          .repetition_penalty = options.repetition_penalty,
          .presence_penalty = options.presence_penalty,
          .frequency_penalty = options.frequency_penalty,
          .history = history};
}

// Sequences start and end while two steps run at a time. Tokens are sampled on the device, where
// the next step reads them. They must be the ones that Sampler samples from the logits of each
// sequence alone. Steps have three sizes. Some are not recorded, one of them because it holds a
// prompt of several tokens.
TEST(SampledStepTest, TokensFollowOnTheDevice) {
  constexpr int kSequences = 5, kSteps = 14, kUnrecorded = 12;
  // Sequence s takes part in steps begins[s] to ends[s] - 1.
  const int begins[] = {0, 0, 0, 0, 3}, ends[] = {5, 14, 14, 7, 14};
  // An empty list stands for a prompt of one token.
  const std::vector<TokenId> prompts[] = {{}, {}, {}, {}, {7, 8, 9}};
  // Returns what sequence `s` computes in its `n`th step.
  const auto item_of = [&](int s, int n, int block_tokens) {
    const int before = std::max<int>(prompts[s].size(), 1) - 1;
    auto item = Batch(kSequences, n + before, block_tokens)[s];
    if (n == 0 && before > 0) {
      item.tokens = prompts[s];
      item.first_position = 0;
    }
    return item;
  };
  const auto end_of = [](const SmallDecoder::Item& item) {
    return item.first_position + static_cast<int>(item.tokens.size());
  };
  const SmallDecoder::Shape shape;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TestDevice device(SeededDevice(seed));
    SmallDecoder recorded(device, shape, true), alone(device, shape, false);
    std::vector<std::vector<SampledToken>> expected(kSequences);
    Sampler sampler;
    const auto first = Batch(kSequences, 0, shape.block_tokens);
    std::vector<TokenHistory> histories;
    for (int s = 0; s < kSequences; ++s) {
      TokenHistory history(first[s].tokens, 1);
      histories.push_back(history);
      for (int i = 0; i < ends[s] - begins[s]; ++i) {
        auto item = item_of(s, i, shape.block_tokens);
        if (i > 0) item.tokens = {expected[s].back().id};
        auto logits = alone.Run({item}, false);
        expected[s].push_back(sampler
                                  .Sample(absl::MakeSpan(logits), SomeSampling(s), end_of(item),
                                          end_of(item) - 1, &history)
                                  .value());
        history.Append(expected[s].back().id);
      }
    }
    std::vector<BackendSample> sampled[2];
    // Sequences of the last two steps, in an order that changes with each step.
    std::vector<int> order[2];
    for (int i = 0; i <= kSteps; ++i) {
      if (i < kSteps) {
        std::vector<int>& now = order[i % 2];
        now.clear();
        for (int j = 0; j < kSequences; ++j) {
          const int s = (j + i) % kSequences;
          if (begins[s] <= i && i < ends[s]) now.push_back(s);
        }
        sampled[i % 2].assign(now.size(), {});
        std::vector<SmallDecoder::Item> items;
        std::vector<SamplingOptions> sampling;
        std::vector<SampleOptions> options(now.size());
        SmallDecoder::Samples samples = {.sampled = absl::MakeSpan(sampled[i % 2])};
        for (const int s : now) sampling.push_back(SomeSampling(s));
        for (size_t j = 0; j < now.size(); ++j) {
          const int s = now[j];
          auto item = item_of(s, i - begins[s], shape.block_tokens);
          samples.follows.insert(samples.follows.end(), item.tokens.size(), -1);
          if (i > begins[s]) {
            item.tokens = {-1};
            const auto& before = order[(i - 1) % 2];
            samples.follows.back() =
                static_cast<int>(std::find(before.begin(), before.end(), s) - before.begin());
          }
          items.push_back(item);
          options[j] = SampleOf(sampling[j], s, end_of(item), &histories[s]);
          samples.options.push_back(&options[j]);
        }
        ASSERT_EQ(recorded.Start(items, {}, i != kUnrecorded, samples), absl::OkStatus());
      }
      if (i == 0) continue;
      ASSERT_EQ(recorded.backend().FinishStep(), absl::OkStatus());
      for (size_t j = 0; j < sampled[(i - 1) % 2].size(); ++j) {
        const int s = order[(i - 1) % 2][j];
        const SampledToken& wanted = expected[s][i - 1 - begins[s]];
        const BackendSample& got = sampled[(i - 1) % 2][j];
        EXPECT_EQ(got.status, absl::OkStatus());
        EXPECT_EQ(got.id, wanted.id) << "step " << i - 1 << ", sequence " << s;
        EXPECT_EQ(got.logprob, wanted.logprob.value_or(0));
        ASSERT_EQ(got.top.size(), wanted.top.size());
        for (size_t t = 0; t < wanted.top.size(); ++t) {
          EXPECT_EQ(got.top[t], std::pair(wanted.top[t].id, wanted.top[t].logprob));
        }
      }
    }
    EXPECT_EQ(recorded.Pool(), alone.Pool());
    EXPECT_GE(recorded.counts().replayed, kSteps - 9);
  }
}

// In each step the host samples for some rows and the device for the others. All steps but one are
// recorded as graphs.
TEST(SampledStepTest, LogitsOfTheOtherRowsReachTheHost) {
  constexpr int kSequences = 5;
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(3));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  Sampler sampler;
  for (int i = 0; i < 6; ++i) {
    const auto items = Batch(kSequences, i, shape.block_tokens);
    const std::vector<bool> on_device = {i % 2 == 0, false, true, i > 3, false};
    std::vector<SamplingOptions> sampling;
    for (int s = 0; s < kSequences; ++s) sampling.push_back(SomeSampling(s % 3));
    std::vector<SampleOptions> options(kSequences);
    SmallDecoder::Samples samples;
    std::vector<float> expected;
    std::vector<TokenId> expected_tokens;
    for (int s = 0; s < kSequences; ++s) {
      options[s] = SampleOf(sampling[s], s, i + 1, nullptr);
      samples.options.push_back(on_device[s] ? &options[s] : nullptr);
      auto logits = alone.Run({items[s]}, false);
      if (on_device[s]) {
        expected_tokens.push_back(
            sampler.Sample(absl::MakeSpan(logits), sampling[s], i + 1, 0)->id);
      } else {
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
    }
    std::vector<float> logits(expected.size());
    std::vector<BackendSample> sampled(expected_tokens.size());
    samples.sampled = absl::MakeSpan(sampled);
    const bool is_recorded = i != 2;
    ASSERT_EQ(recorded.Start(items, absl::MakeSpan(logits), is_recorded, samples),
              absl::OkStatus());
    ASSERT_EQ(recorded.backend().FinishStep(), absl::OkStatus());
    EXPECT_EQ(logits, expected) << "step " << i;
    for (size_t j = 0; j < sampled.size(); ++j) EXPECT_EQ(sampled[j].id, expected_tokens[j]);
  }
}

// The host samples the second token of a sequence, and the device all others. The device must
// penalise the host's token, although the device did not sample it. Without the penalty, the logit
// bias would make the device sample the same token again.
TEST(SampledStepTest, ATokenThatTheHostSampledMeanwhileIsPenalised) {
  constexpr int kSteps = 5, kOnHost = 1;
  SamplingOptions sampling;
  sampling.logit_bias = {{7, 50.0f}, {9, 48.0f}};
  sampling.presence_penalty = 2;
  sampling.frequency_penalty = 2;
  sampling.repetition_penalty = 100;
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder decoder(device, shape, true), alone(device, shape, false);
  Sampler sampler;
  auto item = Batch(1, 0, shape.block_tokens)[0];
  TokenHistory history(item.tokens, 1);
  for (int i = 0; i < kSteps; ++i) {
    auto expected_logits = alone.Run({item}, false);
    const auto expected =
        sampler.Sample(absl::MakeSpan(expected_logits), sampling, i + 1, i, &history);
    ASSERT_TRUE(expected.ok()) << expected.status();
    if (i <= kOnHost) {
      EXPECT_EQ(expected->id, i == 0 ? 7 : 9);
    }
    const SampleOptions options = SampleOf(sampling, 0, i + 1, &history);
    std::vector<BackendSample> sampled(i == kOnHost ? 0 : 1);
    std::vector<float> logits(i == kOnHost ? SmallDecoder::kVocab : 0);
    ASSERT_EQ(decoder.Start({item}, absl::MakeSpan(logits), true,
                            {.options = {i == kOnHost ? nullptr : &options},
                             .sampled = absl::MakeSpan(sampled)}),
              absl::OkStatus());
    ASSERT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
    if (i != kOnHost) {
      EXPECT_EQ(sampled[0].id, expected->id) << "step " << i;
    }
    history.Append(expected->id);
    item = Batch(1, i + 1, shape.block_tokens)[0];
    item.tokens = {expected->id};
  }
}

TEST(SampledStepTest, ARowFollowsOnlyWhatWasSampled) {
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder decoder(device, shape, true);
  const auto items = Batch(2, 0, shape.block_tokens);
  const SampleOptions greedy = {.position = 1};
  std::vector<BackendSample> sampled(1);
  std::vector<float> logits(SmallDecoder::kVocab);
  const auto start = [&](std::vector<int> follows) {
    return decoder.Start(items, absl::MakeSpan(logits), true,
                         {.options = {nullptr, &greedy},
                          .follows = std::move(follows),
                          .sampled = absl::MakeSpan(sampled)});
  };
  EXPECT_EQ(start({0, -1}).code(), absl::StatusCode::kInvalidArgument) << "nothing was sampled yet";
  ASSERT_EQ(start({}), absl::OkStatus());
  for (const int bad : {0, 2, -2}) {
    EXPECT_EQ(start({bad, -1}).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(start({1, -1}), absl::OkStatus()) << "what was refused changed nothing";
  EXPECT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
}

TEST(SampledStepTest, ARowWithoutATokenTellsWhyAndTheOthersHaveTheirs) {
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder decoder(device, shape, true);
  const auto items = Batch(2, 0, shape.block_tokens);
  std::vector<TokenId> all(SmallDecoder::kVocab);
  std::iota(all.begin(), all.end(), 0);
  std::vector<BackendSample> sampled(2);
  const auto start = [&](const SampleOptions& first) {
    const SampleOptions greedy = {.position = 1};
    return decoder.Start(items, {}, true,
                         {.options = {&first, &greedy}, .sampled = absl::MakeSpan(sampled)});
  };
  ASSERT_EQ(start({.position = 1, .banned = all}), absl::OkStatus());
  ASSERT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(sampled[0].status.code(), absl::StatusCode::kInvalidArgument) << sampled[0].status;
  EXPECT_EQ(sampled[1].status, absl::OkStatus());

  EXPECT_EQ(start({.position = 1, .presence_penalty = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  const std::vector<TokenId> many(300, 1);
  EXPECT_EQ(start({.position = 1, .banned = many, .stop_tokens = all, .min_tokens = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(start({.position = 1, .banned = many}), absl::OkStatus());
  ASSERT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(sampled[0].status, absl::OkStatus());
  EXPECT_NE(sampled[0].id, 1);
}

}  // namespace
}  // namespace baton
