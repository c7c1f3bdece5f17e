// Tests Engine::Start and Finish with steps that are started while the previous step is running.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/engine/engine.h"
#include "common/engine/fake_model.h"
#include "common/engine/late_backend.h"
#include "common/engine/one_process.h"
#include "common/kv_cache/block_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class EngineStartTest : public ::testing::Test {
 protected:
  static constexpr int kBlockTokens = 4, kBlocks = 64, kVocab = 128;

  EngineStartTest() { Open({.fake = {.nan_after = 99}}); }

  void Open(LateBackendOptions options) {
    engine_.reset();
    options.generations = generations_.get();
    backend_ = std::make_unique<LateBackend>(std::move(options));
    engine_ = Engine::Create(model_.get(), backend_.get(), {memory_.data(), layout_}, 64).value();
  }

  PlanItem Prompt(const std::vector<BlockId>& blocks, const SamplingOptions* sampling) {
    return {.tokens = prompt_,
            .blocks = blocks,
            .sampling = sampling,
            .original_prompt_tokens = static_cast<int>(prompt_.size())};
  }
  // Returns an item that begins with the token sampled for item number `item` of the previous step.
  // This token is number `n`, counted from 0, of the answer to prompt_.
  PlanItem Next(int n, int item, const std::vector<BlockId>& blocks,
                const SamplingOptions* sampling) {
    const int prompt = static_cast<int>(prompt_.size());
    return {.first_position = prompt + n,
            .blocks = blocks,
            .sampling = sampling,
            .original_prompt_tokens = prompt,
            .follows = item};
  }
  void ExpectInvalid(const StepPlan& plan, const std::string& message) {
    const absl::Status status = engine_->Start(plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
  }

  const std::unique_ptr<const Model> model_ = Model::WithoutWeights(FakeModelConfig(kVocab, 64));
  const KvLayout layout_ = model_->LayoutFor(kBlockTokens, DType::kF16);
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(kBlocks * layout_.BlockBytes(), std::byte{0xEE});
  const std::unique_ptr<std::atomic<uint64_t>[]> generations_ =
      std::make_unique<std::atomic<uint64_t>[]>(kBlocks);
  BlockPool pool_{kBlocks, generations_.get()};
  std::unique_ptr<LateBackend> backend_;
  std::unique_ptr<Engine> engine_;
  const SamplingOptions greedy_;
  const std::vector<TokenId> prompt_ = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  std::vector<std::unique_ptr<std::vector<BlockId>>> blocks_;  // block lists that plans refer to
};

TEST_F(EngineStartTest, AnAnswerIsWrittenWithTheHostOneStepBehind) {
  const auto expected = FakeContinuation(layout_, prompt_, kVocab, 12);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Open({.seed = seed});
    const auto blocks = pool_.Take(6).value();
    std::vector<TokenId> ids;
    const auto finish = [&] {
      const auto tokens = engine_->Finish().value();
      ASSERT_EQ(tokens.size(), 1u);
      EXPECT_EQ(tokens[0]->position, 11 + static_cast<int>(ids.size()));
      EXPECT_FALSE(tokens[0]->logprob);
      ids.push_back(tokens[0]->id);
    };
    ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
    for (int n = 0; n + 1 < 12; ++n) {
      ASSERT_TRUE(engine_->Start({{Next(n, 0, blocks, &greedy_)}}).ok());
      EXPECT_EQ(engine_->running(), 2);
      finish();
    }
    finish();
    EXPECT_EQ(ids, expected) << "seed " << seed;
    EXPECT_EQ(backend_->started_ahead(), 11u);
    EXPECT_EQ(backend_->lost_blocks(), 0u);
    pool_.Release(blocks);
  }
}

// The device counts the tokens that it samples, so it can apply penalties before the host knows
// these tokens.
TEST_F(EngineStartTest, PenaltiesFollowToo) {
  SamplingOptions penalties;
  penalties.temperature = 1.5f;
  penalties.seed = 9;
  penalties.repetition_penalty = 1.3f;
  penalties.frequency_penalty = 0.4f;
  penalties.presence_penalty = 0.2f;
  penalties.max_tokens = 12;
  ASSERT_TRUE(engine_->SamplesOnDevice(penalties, 11));
  const auto expected = GenerateInOneProcess(engine_.get(), &pool_, model_->config(), kBlockTokens,
                                             prompt_, penalties)
                            .value()
                            .tokens;
  const auto blocks = pool_.Take(6).value();
  TokenHistory history(prompt_, 11);
  std::vector<TokenId> ids;
  PlanItem prompt = Prompt(blocks, &penalties);
  prompt.history = &history;
  // The item has no PlanItem::sequence, which the device needs for penalties. So the host samples
  // the token, and no item of the next step can refer to it by PlanItem::follows.
  ASSERT_TRUE(engine_->Start({{prompt}}).ok());
  ExpectInvalid({{Next(0, 0, blocks, &penalties)}}, "whose token the device does not sample");
  EXPECT_EQ(engine_->Finish().value()[0]->id, expected[0].id);
  prompt.sequence = 77;
  ASSERT_TRUE(engine_->Start({{prompt}}).ok());
  for (int n = 0; n < 12; ++n) {
    if (n + 1 < 12) {
      PlanItem next = Next(n, 0, blocks, &penalties);
      next.sequence = 77;
      next.history = &history;  // does not yet hold the tokens that running steps sample
      ASSERT_TRUE(engine_->Start({{next}}).ok());
    }
    ids.push_back(engine_->Finish().value()[0]->id);
    history.Append(ids.back());
    EXPECT_EQ(ids.back(), expected[n].id) << n;
  }
}

// One step mixes an item for which no token is sampled, an item that only the host can sample, and
// items with all kinds of options. Every way to run the step must give the same tokens.
TEST_F(EngineStartTest, SamplesTheSameWhereverTheTokenIsSampled) {
  SamplingOptions options[4];
  options[0].temperature = 1.1f;
  options[0].seed = 5;
  options[0].top_k = 30;
  options[0].top_p = 0.8f;
  options[0].min_p = 0.01f;
  options[0].logprobs = 2;
  options[1].temperature = 2;
  options[1].seed = 6;
  options[1].answer_index = 3;
  options[1].logit_bias = {{7, 4.0f}, {8, -3.0f}, {100'000, 50.0f}};
  options[1].bad_words = {{7}, {100'001}};
  options[2].stop_tokens = FakeContinuation(layout_, prompt_, kVocab, 1);
  options[2].min_tokens = 1;
  options[2].logprobs = 0;
  options[3] = options[0];
  options[3].repetition_penalty = 1.5f;
  options[3].bad_words = {{5, 7}};
  const TokenHistory history(prompt_, static_cast<int>(prompt_.size()));
  const auto plan = [&] {
    StepPlan plan;
    for (const SamplingOptions& sampling : options) {
      const auto blocks = pool_.Take(3).value();
      blocks_.push_back(std::make_unique<std::vector<BlockId>>(blocks));
      plan.items.push_back(Prompt(*blocks_.back(), &sampling));
    }
    plan.items.back().history = &history;
    plan.items[1].tokens = absl::MakeConstSpan(prompt_).first(5);
    plan.items.insert(plan.items.begin() + 1, plan.items[0]);
    plan.items[1].sampling = nullptr;
    return plan;
  };
  const auto compare = [](const Engine::Tokens& one, const Engine::Tokens& other) {
    ASSERT_EQ(one.size(), 4u);
    ASSERT_EQ(other.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(one[i]->id, other[i]->id) << i;
      EXPECT_EQ(one[i]->position, other[i]->position) << i;
      EXPECT_EQ(one[i]->logprob, other[i]->logprob) << i;
      ASSERT_EQ(one[i]->top.size(), other[i]->top.size()) << i;
      for (size_t t = 0; t < one[i]->top.size(); ++t) {
        EXPECT_EQ(one[i]->top[t].id, other[i]->top[t].id);
        EXPECT_EQ(one[i]->top[t].logprob, other[i]->top[t].logprob);
      }
    }
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine_->SamplesOnDevice(options[i], 11)) << i;
  EXPECT_FALSE(engine_->SamplesOnDevice(options[3], 11));
  ASSERT_TRUE(engine_->Start(plan()).ok());
  const auto started = engine_->Finish().value();
  const auto run = engine_->Run(plan()).value();
  const auto on_host =
      engine_->Run(plan(), [](int, const std::shared_ptr<DeviceEvent>&) {}).value();
  const auto fake = CreateFakeBackend();
  const auto plain =
      Engine::Create(model_.get(), fake.get(), {memory_.data(), layout_}, 64).value();
  EXPECT_FALSE(plain->samples());
  EXPECT_FALSE(plain->SamplesOnDevice(options[0], 11));
  const auto expected = plain->Run(plan()).value();
  ASSERT_TRUE(plain->Start(plan()).ok());
  compare(expected, plain->Finish().value());
  compare(expected, started);
  compare(expected, run);
  compare(expected, on_host);
}

TEST_F(EngineStartTest, AnyItemMayFollowAnyOther) {
  const auto one = pool_.Take(4).value(), other = pool_.Take(4).value();
  SamplingOptions warm;
  warm.temperature = 1;
  const std::vector<TokenId> chunk = {8, 8, 8};
  ASSERT_TRUE(engine_
                  ->Start({{{.tokens = chunk, .blocks = other},
                            Prompt(one, &greedy_),
                            {.tokens = chunk,
                             .first_position = 0,
                             .blocks = other,
                             .sampling = &warm,
                             .original_prompt_tokens = 3}}})
                  .ok());
  // The second step continues the two sequences that the first step sampled, in the opposite order.
  // A new prompt stands between them.
  const auto third = pool_.Take(1).value();
  PlanItem last = Next(0, 2, other, &warm);
  last.first_position = 3;
  last.original_prompt_tokens = 3;
  ASSERT_TRUE(engine_
                  ->Start({{last,
                            {.tokens = chunk, .blocks = third, .sampling = &greedy_},
                            Next(0, 1, one, &greedy_)}})
                  .ok());
  const auto first = engine_->Finish().value(), second = engine_->Finish().value();
  EXPECT_EQ(first[0]->id, FakeContinuation(layout_, prompt_, kVocab, 1)[0]);
  EXPECT_EQ(second[2]->id, FakeContinuation(layout_, prompt_, kVocab, 2)[1]);
  EXPECT_EQ(second[1]->id, FakeContinuation(layout_, chunk, kVocab, 1)[0]);
  // The expected token is the one sampled after a prompt that consists of the chunk and the first
  // sampled token.
  std::vector<TokenId> tokens = chunk;
  tokens.push_back(first[1]->id);
  const auto again = pool_.Take(2).value();
  const auto expected = engine_->Run(
      {{{.tokens = tokens, .blocks = again, .sampling = &warm, .original_prompt_tokens = 3}}});
  EXPECT_EQ(second[0]->id, (*expected)[0]->id);
}

TEST_F(EngineStartTest, RefusesWhatCanNotFollow) {
  const auto blocks = pool_.Take(6).value();
  SamplingOptions penalty;
  penalty.presence_penalty = 1;
  const TokenHistory history(prompt_, 11);
  ExpectInvalid({{Next(0, 0, blocks, &greedy_)}},
                "item 0 of a step follows an item of the step before, and no step is");
  ExpectInvalid({}, "0 rows");
  PlanItem looks_back = Prompt(blocks, &penalty);
  looks_back.history = &history;
  const PlanItem chunk = Prompt(blocks, nullptr), prompt = Prompt(blocks, &greedy_);
  ASSERT_TRUE(engine_->Start({{chunk, looks_back, prompt}}).ok());
  ExpectInvalid({{Next(0, 0, blocks, &greedy_)}}, "item 0, whose token the device does not sample");
  ExpectInvalid({{prompt, Next(0, 1, blocks, &greedy_)}}, "item 1 of a step follows item 1, whose");
  ExpectInvalid({{Next(0, 3, blocks, &greedy_)}}, "follows item 3; the step before has 3");
  ExpectInvalid({{Next(0, -1, blocks, &greedy_)}}, "follows item -1");
  ExpectInvalid({{Next(1, 2, blocks, &greedy_)}},
                "has position 11; it has 0 tokens of its own "
                "from 12");
  PlanItem two = Next(0, 2, blocks, &greedy_);
  two.tokens = absl::MakeConstSpan(prompt_).first(1);
  ExpectInvalid({{two}}, "it has 1 tokens of its own");
  PromptScores scores = {.prompt = prompt_};
  PlanItem scored = prompt;
  scored.scores = &scores;
  ExpectInvalid({{scored}}, "item 0 of a step that is started has scores");
  EXPECT_EQ(engine_->Run({{prompt}}).status().code(), absl::StatusCode::kFailedPrecondition);
  // None of the refused steps was started, and the running step is intact.
  ASSERT_TRUE(engine_->Start({{Next(0, 2, blocks, &greedy_)}}).ok());
  EXPECT_EQ(engine_->Start({{prompt}}).code(), absl::StatusCode::kFailedPrecondition);
  const auto expected = FakeContinuation(layout_, prompt_, kVocab, 2);
  const auto first = engine_->Finish().value();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1]->id, expected[0]);
  EXPECT_EQ(engine_->Finish().value()[0]->id, expected[1]);
  EXPECT_EQ(engine_->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine_->steps(), 2u);
}

TEST_F(EngineStartTest, ABackendThatDoesNotSampleRunsAStepAndLetsNoneFollow) {
  const auto fake = CreateFakeBackend();
  engine_ = Engine::Create(model_.get(), fake.get(), {memory_.data(), layout_}, 32).value();
  const auto blocks = pool_.Take(6).value();
  ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
  ExpectInvalid({{Next(0, 0, blocks, &greedy_)}}, "whose token the device does not sample");
  EXPECT_EQ(engine_->Finish().value()[0]->id, FakeContinuation(layout_, prompt_, kVocab, 1)[0]);
}

TEST_F(EngineStartTest, LogitsThatAreNoNumbersEndOnlyTheirOwnSequence) {
  const auto bad = pool_.Take(1).value(), good = pool_.Take(4).value();
  const std::vector<TokenId> poisoned = {99};
  const StepPlan plan = {
      {{.tokens = poisoned, .blocks = bad, .sampling = &greedy_}, Prompt(good, &greedy_)}};
  ASSERT_TRUE(engine_->Start(plan).ok());
  PlanItem after = Next(0, 0, bad, &greedy_);
  after.first_position = 1;
  ASSERT_TRUE(engine_->Start({{after, Next(0, 1, good, &greedy_)}}).ok());
  const auto first = engine_->Finish().value(), second = engine_->Finish().value();
  EXPECT_EQ(first[0].status().code(), absl::StatusCode::kInternal);
  const auto expected = FakeContinuation(layout_, prompt_, kVocab, 2);
  EXPECT_EQ(first[1]->id, expected[0]);
  EXPECT_EQ(second[1]->id, expected[1]);
}

TEST_F(EngineStartTest, AStepThatFailedHasEndedAndSoDoesTheOneBehindIt) {
  Open({.failing_step = 1});
  const auto blocks = pool_.Take(6).value();
  ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
  ASSERT_TRUE(engine_->Start({{Next(0, 0, blocks, &greedy_)}}).ok());
  EXPECT_EQ(engine_->Finish().status().message(), "the device has failed");
  EXPECT_EQ(engine_->running(), 1);
  EXPECT_TRUE(engine_->Finish().ok());
  EXPECT_EQ(engine_->Run({{Prompt(blocks, &greedy_)}}).value()[0]->id,
            FakeContinuation(layout_, prompt_, kVocab, 1)[0]);
}

TEST_F(EngineStartTest, AnEngineThatGoesWaitsForItsSteps) {
  const auto blocks = pool_.Take(6).value();
  ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
  ASSERT_TRUE(engine_->Start({{Next(0, 0, blocks, &greedy_)}}).ok());
  engine_.reset();
  EXPECT_EQ(backend_->FinishStep().code(), absl::StatusCode::kFailedPrecondition);
}

// One sequence has all its tokens banned: device and host return the same error for it. The other
// sequence of the step gets its token.
TEST_F(EngineStartTest, WhereNoTokenIsLeftTheDeviceSaysSoAsTheHostDoes) {
  SamplingOptions nothing;
  for (TokenId id = 0; id < kVocab; ++id) nothing.bad_words.push_back({id});
  const auto blocks = pool_.Take(3).value(), others = pool_.Take(3).value();
  const StepPlan plan = {{Prompt(blocks, &nothing), Prompt(others, &greedy_)}};
  const auto device = engine_->Run(plan).value();
  const auto host = engine_->Run(plan, [](int, const std::shared_ptr<DeviceEvent>&) {}).value();
  EXPECT_EQ(device[0].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device[0].status(), host[0].status());
  EXPECT_EQ(device[1]->id, host[1]->id);
}

TEST_F(EngineStartTest, FromTooLargeAVocabularyTheHostSamples) {
  Open({.max_sample_vocab = kVocab - 1});
  EXPECT_FALSE(engine_->samples());
  const auto blocks = pool_.Take(3).value();
  ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
  EXPECT_EQ(engine_->Finish().value()[0]->id, FakeContinuation(layout_, prompt_, kVocab, 1)[0]);
}

// A block is lost if it is released before the step that uses it has run. All tests above rely on
// LateBackend to count lost blocks. This test checks that it counts them.
TEST_F(EngineStartTest, TheLateBackendSeesBlocksThatWereGivenBackTooEarly) {
  const auto blocks = pool_.Take(6).value();
  ASSERT_TRUE(engine_->Start({{Prompt(blocks, &greedy_)}}).ok());
  pool_.Release(blocks);
  ASSERT_TRUE(engine_->Finish().ok());
  EXPECT_GT(backend_->lost_blocks(), 0u);
  EXPECT_THAT(backend_->first_lost(), HasSubstr("step 1, sequence 0: block"));
}

}  // namespace
}  // namespace baton
