#include "kernels/cuda/device_sampler.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_sampler_cases.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// This file is built twice: with normal kernels, and with kernels whose accesses are all checked
// (device_sampler_checked_test).
TEST(DeviceSamplerTest, SamplesWhatTheHostSamples) {
  for (int i = 0; i < kSampleCases; ++i) {
    EXPECT_EQ(RunSampleCase(i), absl::OkStatus()) << "case " << i;
  }
}

class OnDevice : public testing::Test {
 protected:
  OnDevice()
      : runtime_(CreateEmulatedRuntime({.check = true}).value()),
        stream_(runtime_->CreateStream().value()) {}

  DeviceSamplerOptions Options(int vocab, int max_rows = 2, int slots = 2) {
    return {.runtime = runtime_.get(),
            .stream = stream_.get(),
            .kernels = &kernels_,
            .vocab = vocab,
            .max_rows = max_rows,
            .slots = slots,
            .history_tokens = std::min(vocab, 10)};
  }
  // Samples a token from these logits in slot 0.
  absl::StatusOr<SampledToken> Sample(DeviceSampler& sampler, const std::vector<float>& logits,
                                      int position) {
    float* const device = reinterpret_cast<float*>(Uploaded(logits));
    const auto needs = sampler.Prepare({{0, position, 1000}});
    EXPECT_EQ(needs.status(), absl::OkStatus());
    EXPECT_EQ(sampler.Enqueue(device, reinterpret_cast<int32_t*>(Uploaded({0})), 1, *needs),
              absl::OkStatus());
    EXPECT_EQ(sampler.Fetch(), absl::OkStatus());
    ASSIGN_OR_RETURN(const auto sampled, sampler.Take());
    return sampled.at(0);
  }
  static void ExpectSame(const absl::StatusOr<SampledToken>& sampled,
                         const absl::StatusOr<SampledToken>& expected, size_t alternatives) {
    ASSERT_EQ(sampled.status(), absl::OkStatus());
    EXPECT_EQ(sampled->id, expected->id);
    EXPECT_EQ(sampled->logprob, expected->logprob);
    ASSERT_EQ(sampled->top.size(), alternatives);
    for (size_t i = 0; i < alternatives; ++i) {
      EXPECT_EQ(sampled->top[i].id, expected->top[i].id);
      EXPECT_EQ(sampled->top[i].logprob, expected->top[i].logprob);
    }
  }
  std::byte* Uploaded(const std::vector<float>& values) {
    std::byte* const memory = runtime_->Allocate(values.size() * sizeof(float)).value();
    EXPECT_EQ(runtime_->Copy(memory, values.data(), values.size() * sizeof(float), *stream_),
              absl::OkStatus());
    return memory;
  }

  const KernelTable kernels_ = EmulatedKernels();
  const std::unique_ptr<DeviceRuntime> runtime_;
  const std::unique_ptr<DeviceStream> stream_;
};

using DeviceSamplerOnDevice = OnDevice;

// A vocabulary of several chunks and hundreds of blocks of logits. sample_token has the max number
// of threads.
TEST_F(DeviceSamplerOnDevice, ALargeVocabulary) {
  constexpr int kVocab = 130000;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  const auto sampler = DeviceSampler::Create(Options(kVocab)).value();
  Sampler host;
  for (const auto& [top_k, top_p] :
       std::vector<std::pair<int, float>>{{0, 1}, {0, 0.9f}, {60, 0.8f}}) {
    SamplingOptions options;
    options.temperature = 1;
    options.top_k = top_k;
    options.top_p = top_p;
    options.seed = 5;
    options.logprobs = 20;
    ASSERT_EQ(sampler->Join(0, options, nullptr), absl::OkStatus());
    const auto sampled = Sample(*sampler, logits, 7);
    const auto expected = host.Sample(absl::MakeSpan(logits), options, 7, 1000);
    ExpectSame(sampled, expected, 20);
  }
}

TEST_F(DeviceSamplerOnDevice, WhatTheHostHasToSample) {
  const auto sampler = DeviceSampler::Create(Options(100)).value();
  SamplingOptions options;
  EXPECT_TRUE(sampler->CanSample(options, 1 << 30));
  options.bad_words = {{3}, {99}};
  EXPECT_TRUE(sampler->CanSample(options, 1 << 30));
  options.presence_penalty = 1;
  EXPECT_TRUE(sampler->CanSample(options, 10));
  EXPECT_FALSE(sampler->CanSample(options, 11));
  options.presence_penalty = 0;
  options.bad_words = {{3, 4}};
  EXPECT_FALSE(sampler->CanSample(options, 1));
  EXPECT_THAT(sampler->Join(0, options, nullptr).message(), HasSubstr("can't sample by"));
  // Here the history has space for 10 distinct tokens. A vocabulary of 10 tokens has no more, so
  // this history suffices for sequences of any length.
  options.bad_words.clear();
  options.frequency_penalty = 1;
  auto small = Options(10);
  EXPECT_TRUE(DeviceSampler::Create(small).value()->CanSample(options, 1 << 30));
}

TEST_F(DeviceSamplerOnDevice, RefusesWhatCanNotBe) {
  for (const int vocab : {0, -1, kMaxSampleVocab + 1}) {
    EXPECT_EQ(DeviceSampler::Create(Options(vocab)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(DeviceSampler::Create(Options(100, 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto sampler = DeviceSampler::Create(Options(100)).value();
  SamplingOptions options;
  EXPECT_THAT(sampler->Join(2, options, nullptr).message(), HasSubstr("slot 2 of 2"));
  options.presence_penalty = 1;
  EXPECT_THAT(sampler->Join(0, options, nullptr).message(), HasSubstr("without its history"));
  std::vector<TokenId> tokens(11);
  for (int i = 0; i < 11; ++i) tokens[i] = 2 * i;
  const TokenHistory history(tokens, 1);
  EXPECT_THAT(sampler->Join(0, options, &history).message(), HasSubstr("11 distinct tokens"));
  EXPECT_THAT(sampler->Prepare({{0, 1, 0}}).status().message(), HasSubstr("slot 0 of 2"));
  options.presence_penalty = 0;
  options.temperature = 1;
  ASSERT_EQ(sampler->Join(0, options, nullptr), absl::OkStatus());
  EXPECT_THAT(sampler->Prepare({{0, 1, 0}, {0, 1, 0}}).status().message(),
              HasSubstr("row 1 is sampled for slot 0"));
  EXPECT_THAT(sampler->Prepare(std::vector<DeviceSampler::Row>(3)).status().message(),
              HasSubstr("3 rows to sample; at most 2"));
  ASSERT_EQ(sampler->Prepare({{0, 1, 0}}).status(), absl::OkStatus());
  EXPECT_THAT(sampler->Enqueue(nullptr, nullptr, 1, {}).message(), HasSubstr("need more kernels"));
  EXPECT_THAT(sampler->Enqueue(nullptr, nullptr, 3, {.samples = true}).message(),
              HasSubstr("sampling 3 rows"));
  EXPECT_EQ(sampler->Take().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeviceSamplerOnDevice, TwoStepsMayBeUnderWay) {
  const auto sampler = DeviceSampler::Create(Options(3)).value();
  ASSERT_EQ(sampler->Join(0, {}, nullptr), absl::OkStatus());
  const auto start = [&](const std::vector<float>& logits, int position) {
    EXPECT_EQ(sampler->Prepare({{0, position, 1}}).status(), absl::OkStatus());
    EXPECT_EQ(sampler->Enqueue(reinterpret_cast<float*>(Uploaded(logits)),
                               reinterpret_cast<int32_t*>(Uploaded({0})), 1, {}),
              absl::OkStatus());
    return sampler->Fetch();
  };
  EXPECT_EQ(start({1, 2, 0}, 5), absl::OkStatus());
  EXPECT_EQ(start({1, 0, 2}, 6), absl::OkStatus());
  EXPECT_EQ(start({2, 0, 1}, 7).code(), absl::StatusCode::kFailedPrecondition);
  const auto first = sampler->Take();
  EXPECT_EQ(first->at(0)->id, 1);
  EXPECT_EQ(first->at(0)->position, 5);
  EXPECT_EQ(sampler->Fetch(), absl::OkStatus());
  EXPECT_EQ(sampler->Take()->at(0)->id, 2);
  const auto third = sampler->Take();
  EXPECT_EQ(third->at(0)->id, 0);
  EXPECT_EQ(third->at(0)->position, 7);
  EXPECT_FALSE(third->at(0)->logprob);
}

// The largest vocabulary, with equal logits. No row can have a larger sum of weights.
TEST_F(DeviceSamplerOnDevice, AFlatVocabularyIsCutByIds) {
  constexpr int kVocab = kMaxSampleVocab;
  const std::vector<float> flat(kVocab, 1.5f);
  const auto sampler = DeviceSampler::Create(Options(kVocab, 1, 1)).value();
  SamplingOptions options;
  options.temperature = 1;
  options.logprobs = 20;
  options.top_k = kVocab / 2;
  options.top_p = 0.5f;
  ASSERT_EQ(sampler->Join(0, options, nullptr), absl::OkStatus());
  const auto sampled = Sample(*sampler, flat, 9);
  std::vector<float> logits = flat;
  ExpectSame(sampled, Sampler().Sample(absl::MakeSpan(logits), options, 9, 1000), 20);
  EXPECT_EQ(sampled->id, static_cast<TokenId>(UniformAt(0, 9) * (kVocab / 4)));
  EXPECT_FLOAT_EQ(*sampled->logprob, -std::log(static_cast<float>(kVocab)));
}

}  // namespace
}  // namespace baton
