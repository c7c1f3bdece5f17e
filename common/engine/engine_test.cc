#include "common/engine/engine.h"

#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/engine/fake_model.h"
#include "common/engine/one_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/fake/fake_backend.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

class EngineTest : public ::testing::Test {
 protected:
  static constexpr int kBlockTokens = 4;
  static constexpr int kBlocks = 64;

  // The logits after this token are NaN. No sequence of these tests generates it.
  static constexpr TokenId kPoison = 126;

  explicit EngineTest(FakeBackendOptions options = {.nan_after = kPoison})
      : model_(Model::WithoutWeights(FakeModelConfig(128, 64))),
        backend_(CreateFakeBackend(std::move(options))),
        layout_(model_->LayoutFor(kBlockTokens, DType::kF16)),
        memory_(kBlocks * layout_.BlockBytes(), std::byte{0xEE}),
        engine_(
            Engine::Create(model_.get(), backend_.get(), {memory_.data(), layout_}, 32).value()) {
    greedy_.max_tokens = 8;
  }

  std::vector<TokenId> Ids(const OneProcessAnswer& answer) {
    std::vector<TokenId> ids;
    for (const SampledToken& token : answer.tokens) ids.push_back(token.id);
    return ids;
  }

  absl::StatusOr<OneProcessAnswer> Generate(const std::vector<TokenId>& prompt,
                                            const SamplingOptions& sampling, int chunk = 0,
                                            int original = 0) {
    return GenerateInOneProcess(engine_.get(), &pool_, model_->config(), kBlockTokens, prompt,
                                sampling, chunk, original);
  }

  std::unique_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  KvLayout layout_;
  std::vector<std::byte> memory_;
  BlockPool pool_{kBlocks};
  std::unique_ptr<Engine> engine_;
  SamplingOptions greedy_;
  const std::vector<TokenId> prompt_ = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
};

TEST_F(EngineTest, AnswersAsTheOracleForEveryChunk) {
  const auto expected = FakeContinuation(layout_, prompt_, 128, 8);
  for (const int chunk : {0, 1, 3, 4, 8, 11, 32}) {
    const auto answer = Generate(prompt_, greedy_, chunk).value();
    EXPECT_EQ(Ids(answer), expected) << chunk;
    EXPECT_EQ(answer.reason, FinishReason::kLength);
    EXPECT_EQ(answer.tokens[0].position, 11);
    EXPECT_EQ(pool_.free_blocks(), kBlocks);
  }
}

TEST_F(EngineTest, EachSequenceOfAMixedStepGetsWhatItWouldGetAlone) {
  SamplingOptions sampled = greedy_;
  sampled.temperature = 1;
  sampled.seed = 77;
  const std::vector<TokenId> other = {8, 8, 8};
  const auto first = pool_.Take(3).value();
  const auto second = pool_.Take(1).value();
  const auto third = pool_.Take(3).value();
  const auto all = absl::MakeConstSpan(prompt_);
  ASSERT_TRUE(engine_
                  ->Run({{{.tokens = all.first(8), .blocks = first},
                          {.tokens = all.first(4), .blocks = third}}})
                  .ok());
  std::vector<int> layers;
  const auto tokens = engine_->Run({{{all.subspan(8), 8, first, &greedy_, 11},
                                     {other, 0, second, &sampled, 3},
                                     {all.subspan(4, 4), 4, third, nullptr, 11}}},
                                   [&](int layer, const std::shared_ptr<DeviceEvent>& written) {
                                     EXPECT_TRUE(written == nullptr);
                                     layers.push_back(layer);
                                   });
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), 2u);
  EXPECT_EQ((*tokens)[0]->id, Generate(prompt_, greedy_)->tokens[0].id);
  EXPECT_EQ((*tokens)[1]->id, Generate(other, sampled)->tokens[0].id);
  EXPECT_EQ((*tokens)[1]->position, 3);
  EXPECT_THAT(layers, ElementsAre(0, 1));
}

TEST_F(EngineTest, BadNumbersEndOnlyTheirOwnSequence) {
  const auto first = pool_.Take(1).value();
  const auto second = pool_.Take(1).value();
  const std::vector<TokenId> poisoned = {kPoison}, sound = {1};
  const auto tokens =
      engine_->Run({{{poisoned, 0, first, &greedy_, 1}, {sound, 0, second, &greedy_, 1}}}).value();
  EXPECT_EQ(tokens[0].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(tokens[1]->id, FakeContinuation(layout_, sound, 128, 1)[0]);
}

TEST_F(EngineTest, AnswersEndAtStopTokensLengthAndContext) {
  const auto expected = FakeContinuation(layout_, prompt_, 128, 60);
  SamplingOptions sampling = greedy_;
  sampling.stop_tokens = {expected[2]};
  EXPECT_EQ(Generate(prompt_, sampling)->tokens.size(), 3u);
  EXPECT_EQ(Generate(prompt_, sampling)->reason, FinishReason::kStop);
  sampling.min_tokens = 4;
  EXPECT_GE(Generate(prompt_, sampling)->tokens.size(), 5u);
  sampling = greedy_;
  sampling.max_tokens = 1000;
  const auto full = Generate(prompt_, sampling).value();
  EXPECT_EQ(full.tokens.back().position, 63);
  EXPECT_EQ(full.reason, FinishReason::kLength);
  EXPECT_FALSE(Generate(std::vector<TokenId>(64, 1), sampling).ok());
  EXPECT_FALSE(Generate({}, sampling).ok());
}

TEST_F(EngineTest, ARestartedSequenceGoesOnAsIfNothingHadHappened) {
  SamplingOptions sampling;
  sampling.temperature = 1.2f;
  sampling.seed = 5;
  sampling.max_tokens = 20;
  sampling.min_tokens = 10;
  for (TokenId stop = 0; stop < 40; ++stop) sampling.stop_tokens.push_back(stop);
  sampling.repetition_penalty = 1.4f;
  sampling.presence_penalty = 0.5f;
  sampling.frequency_penalty = 0.5f;
  sampling.bad_words = {{90}, {3, 91}, {5, 92}};
  const auto whole = Ids(Generate(prompt_, sampling).value());
  ASSERT_GT(whole.size(), 10u);
  for (size_t done = 1; done < whole.size(); ++done) {
    std::vector<TokenId> so_far = prompt_;
    so_far.insert(so_far.end(), whole.begin(), whole.begin() + done);
    EXPECT_EQ(Ids(Generate(so_far, sampling, 4, 11).value()),
              std::vector<TokenId>(whole.begin() + done, whole.end()));
  }
}

// The prompt is longer than kScoredAtOnce rows, so its rows are scored in several groups.
TEST_F(EngineTest, APromptIsScoredTheSameInEveryChunking) {
  std::mt19937 random(4);
  std::vector<TokenId> prompt(30);
  for (TokenId& id : prompt) id = static_cast<TokenId>(random() % kPoison);
  std::vector<SampledToken> expected = {{.id = prompt[0], .position = 0}};
  FakeOracle oracle(layout_);
  Sampler sampler;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    oracle.Append(prompt[i]);
    std::vector<float> logits(128);
    oracle.Logits(absl::MakeSpan(logits));
    expected.push_back(sampler.Score(logits, prompt[i + 1], static_cast<int>(i) + 1, 3).value());
  }
  SamplingOptions sampling = greedy_;
  sampling.prompt_logprobs = 3;
  const auto plain = Generate(prompt, greedy_).value();
  for (const int chunk : {0, 1, 3, 8, 17, 29}) {
    // Only the first `original` tokens are scored. The others count as generated.
    for (const int original : {30, 29, 12, 1}) {
      const auto answer = Generate(prompt, sampling, chunk, original).value();
      ASSERT_EQ(answer.prompt.size(), static_cast<size_t>(original)) << chunk;
      for (int i = 0; i < original; ++i) {
        EXPECT_EQ(answer.prompt[i].id, prompt[i]);
        EXPECT_EQ(answer.prompt[i].position, i);
        EXPECT_EQ(answer.prompt[i].logprob, expected[i].logprob) << chunk << " " << i;
        ASSERT_EQ(answer.prompt[i].top.size(), i == 0 ? 0u : 3u);
        for (size_t k = 0; k < answer.prompt[i].top.size(); ++k) {
          EXPECT_EQ(answer.prompt[i].top[k].id, expected[i].top[k].id);
          EXPECT_EQ(answer.prompt[i].top[k].logprob, expected[i].top[k].logprob);
        }
      }
    }
    EXPECT_EQ(Ids(Generate(prompt, sampling, chunk).value()), Ids(plain)) << chunk;
  }
  prompt[7] = kPoison;
  EXPECT_EQ(Generate(prompt, sampling, 3).status().code(), absl::StatusCode::kInternal);
}

TEST_F(EngineTest, StepErrorsComeThrough) {
  const auto blocks = pool_.Take(1).value();
  EXPECT_EQ(engine_->Run({{{prompt_, 0, blocks, &greedy_, 11}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine_->Run({})->empty());
}

// Models whose rotary table depends on the sequence length and changes in the middle of the answer.
class LengthDependentRopeTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kBlockTokens = 8, kBlocks = 32, kMaxRows = 128;

  LengthDependentRopeTest() {
    const std::string folder =
        absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/", GetParam());
    backend_ = CreateCpuBackend({.threads = 1}).value();
    model_ = Model::Load(folder, backend_.get()).value();
    layout_ = model_->LayoutFor(kBlockTokens, DType::kF32);
    memory_.resize(kBlocks * layout_.BlockBytes());
    engine_ =
        Engine::Create(model_.get(), backend_.get(), {memory_.data(), layout_}, kMaxRows).value();
    const auto golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
    prompt_ = golden["prompt"].get<std::vector<TokenId>>();
    answer_ = golden["continuation"].get<std::vector<TokenId>>();
    sampling_.max_tokens = static_cast<int>(answer_.size());
    sampling_.logprobs = 0;
  }

  std::vector<SampledToken> Generate(absl::Span<const TokenId> tokens, int chunk) {
    return GenerateInOneProcess(engine_.get(), &pool_, model_->config(), kBlockTokens, tokens,
                                sampling_, chunk, static_cast<int>(prompt_.size()))
        ->tokens;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::vector<std::byte> memory_;
  BlockPool pool_{kBlocks};
  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> prompt_, answer_;
  SamplingOptions sampling_;
};

TEST_P(LengthDependentRopeTest, EveryTokenIsThatOfOneForwardPassWithoutACache) {
  const auto blocks = pool_.Take(16).value();
  std::vector<TokenId> tokens = prompt_;
  std::vector<SampledToken> expected;
  for (size_t i = 0; i < answer_.size(); ++i) {
    const auto sampled =
        engine_->Run({{{.tokens = tokens,
                        .blocks = blocks,
                        .sampling = &sampling_,
                        .original_prompt_tokens = static_cast<int>(prompt_.size())}}});
    expected.push_back((*sampled)[0].value());
    tokens.push_back(expected.back().id);
    EXPECT_EQ(expected.back().id, answer_[i]) << i;
  }
  pool_.Release(blocks);
  for (const int chunk : {0, 1, 7, 16}) {
    const auto answer = Generate(prompt_, chunk);
    ASSERT_EQ(answer.size(), expected.size());
    for (size_t i = 0; i < answer.size(); ++i) {
      EXPECT_EQ(answer[i].id, expected[i].id) << i << ", chunks of " << chunk;
      EXPECT_EQ(answer[i].logprob, expected[i].logprob) << i << ", chunks of " << chunk;
    }
  }
}

TEST_P(LengthDependentRopeTest, ARestartAnywhereChangesNothing) {
  const auto whole = Generate(prompt_, 0);
  std::vector<TokenId> tokens = prompt_;
  for (size_t done = 0; done + 1 < whole.size(); ++done) {
    tokens.push_back(whole[done].id);
    const auto rest = Generate(tokens, 5);
    ASSERT_EQ(rest.size(), whole.size() - done - 1);
    for (size_t i = 0; i < rest.size(); ++i) {
      EXPECT_EQ(rest[i].id, whole[done + 1 + i].id);
      EXPECT_EQ(rest[i].logprob, whole[done + 1 + i].logprob) << "restarted after " << done + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, LengthDependentRopeTest,
                         ::testing::Values("phi3_five_crossing_f32", "llama_five_dynamic_f32",
                                           "mistral_dynamic_f16"));

}  // namespace
}  // namespace baton
