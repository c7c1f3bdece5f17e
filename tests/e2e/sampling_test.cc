// Tests all sampling options of a request over real processes. Tokens and logprobs must equal those
// of a single process, also if the worker that generates them is killed during the answer.

#include <cmath>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"
#include "tests/e2e/e2e_test.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

// In the numerics f32, GEMMs and KV use floats, so results differ from those of transformers only
// by the order of additions.
constexpr char kNumerics[] = "f32";

class SamplingE2eTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto truth = Truth::Load(kDemoModel, kNumerics, DType::kF32);
    ASSERT_TRUE(truth.ok()) << truth.status();
    truth_ = truth->release();
    const std::string numerics = absl::StrCat("--numerics=", kNumerics);
    auto cluster =
        Cluster::Start({.prefill = 2,
                        .decode = 2,
                        .prefill_flags = {"--kv-type=f32", numerics, "--chunk-tokens=64"},
                        .decode_flags = {"--kv-type=f32", numerics}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete truth_;
  }

  int vocab() { return truth_->config().vocab; }
  std::vector<TokenId> Prompt(int tokens) {
    std::vector<TokenId> prompt(tokens);
    for (TokenId& id : prompt) id = static_cast<TokenId>(random_() % vocab());
    return prompt;
  }
  // Returns random values for all options.
  SamplingOptions RandomOptions() {
    SamplingOptions options;
    options.max_tokens = 2 + static_cast<int>(random_() % 30);
    options.temperature = random_() % 3 == 0 ? 0 : 0.9f;
    options.seed = random_();
    if (random_() % 2) options.top_p = 0.9f;
    if (random_() % 3 == 0) options.top_k = 20;
    if (random_() % 3 == 0) options.min_p = 0.02f;
    if (random_() % 2) options.repetition_penalty = random_() % 2 ? 1.3f : 0.8f;
    if (random_() % 2) options.frequency_penalty = random_() % 2 ? 0.7f : -0.5f;
    if (random_() % 2) options.presence_penalty = random_() % 2 ? 1.2f : -0.4f;
    if (random_() % 2) options.logit_bias = {{5, 4.5f}, {17, -100}, {300, 3}};
    if (random_() % 2) {
      for (TokenId id = 0; id < 60; ++id) options.bad_words.push_back({id * 7});
      for (TokenId id = 0; id < 60; ++id) options.bad_words.push_back({id, id * 3 + 1});
    }
    if (random_() % 3 == 0) {
      options.min_tokens = options.max_tokens / 2;
      for (TokenId id = 0; id < 100; ++id) options.stop_tokens.push_back(id * 2);
    }
    if (random_() % 2) options.logprobs = 2;
    if (random_() % 2) options.prompt_logprobs = static_cast<int>(random_() % 4);
    return options;
  }
  static v1::GenerateRequest RequestFor(const std::vector<TokenId>& prompt,
                                        const SamplingOptions& options, uint32_t n) {
    v1::GenerateRequest request = TokenRequest(prompt, options.max_tokens);
    *request.mutable_sampling() = SamplingToProto(options);
    request.mutable_sampling()->set_ignore_eos(true);
    request.mutable_sampling()->set_n(n);
    // The mode varies with the seed, because the answer must be the same in any mode.
    request.set_mode(static_cast<v1::ServingMode>(options.seed % 4));
    return request;
  }
  static void ExpectTokens(const std::vector<v1::Token>& tokens,
                           const std::vector<SampledToken>& expected) {
    ASSERT_EQ(tokens.size(), expected.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(tokens[i].token_id(), expected[i].id) << i;
      ASSERT_EQ(tokens[i].position(), static_cast<uint32_t>(expected[i].position));
      ASSERT_EQ(tokens[i].has_logprob(), expected[i].logprob.has_value());
      ASSERT_EQ(tokens[i].logprob(), expected[i].logprob.value_or(0)) << i;
      ASSERT_EQ(tokens[i].top_size(), static_cast<int>(expected[i].top.size()));
      for (int k = 0; k < tokens[i].top_size(); ++k) {
        ASSERT_EQ(tokens[i].top(k).token_id(), expected[i].top[k].id);
        ASSERT_EQ(tokens[i].top(k).logprob(), expected[i].top[k].logprob);
      }
    }
  }
  // Expects each answer to equal the answer of a single process, bit for bit.
  static void ExpectTruth(const Answer& answer, const std::vector<TokenId>& prompt,
                          SamplingOptions options, Truth* truth = truth_) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    uint32_t completion_tokens = 0, totals = 0;
    for (size_t index = 0; index <= answer.others.size(); ++index) {
      const Answer& one = index == 0 ? answer : answer.others[index - 1];
      options.answer_index = static_cast<uint32_t>(index);
      const auto expected = truth->FullAnswer(prompt, options);
      ASSERT_TRUE(expected.ok()) << expected.status();
      ExpectTokens(one.tokens, expected->tokens);
      if (index == 0) ExpectTokens(answer.prompt, expected->prompt);
      completion_tokens += one.tokens.size();
      totals += one.summary.has_total();
    }
    EXPECT_EQ(totals, 1u);
    for (size_t index = 0; index <= answer.others.size(); ++index) {
      const Answer& one = index == 0 ? answer : answer.others[index - 1];
      if (!one.summary.has_total()) continue;
      EXPECT_EQ(one.summary.total().completion_tokens(), completion_tokens);
      EXPECT_EQ(one.summary.total().prompt_tokens(), prompt.size());
    }
  }

  static Truth* truth_;
  static Cluster* cluster_;
  std::mt19937 random_{kE2eSeed};
};
Truth* SamplingE2eTest::truth_ = nullptr;
Cluster* SamplingE2eTest::cluster_ = nullptr;

TEST_F(SamplingE2eTest, EveryCombinationIsAnsweredAsOneProcessDoes) {
  for (int round = 0; round < 60; ++round) {
    const std::vector<TokenId> prompt = Prompt(1 + static_cast<int>(random_() % 200));
    const SamplingOptions options = RandomOptions();
    const uint32_t n = random_() % 2 ? 1 : 1 + random_() % 4;
    const Answer answer = Generate(cluster_->stub(), RequestFor(prompt, options, n));
    ASSERT_NO_FATAL_FAILURE(ExpectTruth(answer, prompt, options))
        << "round " << round << " of seed " << kE2eSeed;
  }
}

TEST_F(SamplingE2eTest, AKilledWorkerChangesNoSample) {
  // Max number of attempts for all six rounds. If this process reads slowly, the router may have
  // the whole answer before the worker is killed, so that no answer migrates. Such a round is
  // repeated with another prompt.
  constexpr int kMaxAttempts = 20;
  int attempts = 0;
  for (int round = 0; round < 6;) {
    ASSERT_LT(attempts++, kMaxAttempts) << "in round " << round;
    const std::vector<TokenId> prompt = Prompt(150);
    SamplingOptions options = RandomOptions();
    options.max_tokens = 120;
    options.stop_tokens.clear();
    options.repetition_penalty = 1.2f;
    options.frequency_penalty = 0.3f;
    options.bad_words.push_back({11, 12});
    options.prompt_logprobs = 1;
    const uint32_t n = 1 + round % 3;
    const bool kill_decode = round % 2 == 0;
    bool killed = false;
    // Kills both decode workers or both prefill workers, because the test does not know which of
    // the two computes the answer.
    const Answer answer = Generate(cluster_->stub(), RequestFor(prompt, options, n),
                                   absl::Seconds(60), [&](const v1::Token& token) {
                                     if (killed || token.position() < prompt.size() + 20) return;
                                     killed = true;
                                     for (int i = 0; kill_decode && i < 2; ++i)
                                       cluster_->decode(i).Signal(SIGKILL);
                                     for (int i = 0; !kill_decode && i < 2; ++i)
                                       cluster_->prefill(i).Signal(SIGKILL);
                                     for (int i = 0; i < 2; ++i) {
                                       const absl::Status back = kill_decode
                                                                     ? cluster_->RestartDecode(i)
                                                                     : cluster_->RestartPrefill(i);
                                       ASSERT_TRUE(back.ok()) << back;
                                     }
                                   });
    ASSERT_TRUE(killed);
    ASSERT_NO_FATAL_FAILURE(ExpectTruth(answer, prompt, options)) << "round " << round;
    ASSERT_TRUE(cluster_->WaitReady(2, 2, absl::Seconds(30)).ok());
    if (!kill_decode || answer.summary.migrations() > 0) ++round;
  }
}

// Each of three models has a rotary table that changes at 32 or 64 tokens. When a sequence grows
// longer, its KV is computed again. The options cover all state that the sequence must keep
// meanwhile.
TEST_F(SamplingE2eTest, AnswersThatOutgrowTheirRotaryTableAreThoseOfOneProcess) {
  for (const char* model :
       {"phi3_five_crossing_f32", "llama_five_dynamic_f32", "mistral_dynamic_f16"}) {
    SCOPED_TRACE(model);
    const ServedFolder folder(model);
    const auto truth = Truth::Load(folder.path(), kNumerics, DType::kF32);
    ASSERT_TRUE(truth.ok()) << truth.status();
    const std::vector<std::string> flags = {"--kv-type=f32", absl::StrCat("--numerics=", kNumerics),
                                            "--kv-bytes=16777216", "--chunk-tokens=32"};
    auto cluster = Cluster::Start({.model = folder.path(),
                                   .prefill_flags = flags,
                                   .decode_flags = {flags.begin(), flags.end() - 1}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();

    const int table = absl::string_view(model) == "mistral_dynamic_f16" ? 64 : 32;
    std::vector<std::vector<TokenId>> prompts(8);
    std::vector<SamplingOptions> options(prompts.size());
    std::vector<Answer> answers(prompts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < prompts.size(); ++i) {
      prompts[i].resize(table - 1 - random_() % 12);
      for (TokenId& id : prompts[i]) id = static_cast<TokenId>(random_() % 256);
      options[i].max_tokens = 30;
      options[i].seed = random_();
      options[i].temperature = i % 2 ? 0.9f : 0;
      options[i].logprobs = 2;
      if (i % 4 < 2) options[i].prompt_logprobs = 2;
      if (i % 4 > 0) {
        options[i].repetition_penalty = 1.3f;
        options[i].frequency_penalty = 0.4f;
        options[i].presence_penalty = -0.3f;
        options[i].logit_bias = {{5, 4.5f}, {17, -100}};
        for (TokenId id = 0; id < 60; ++id) options[i].bad_words.push_back({id, id * 3 + 1});
      }
      threads.emplace_back([&, i] {
        const uint32_t n = i < 4 ? 1 : 2;
        answers[i] = Generate((*cluster)->stub(), RequestFor(prompts[i], options[i], n));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("request ", i));
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
      ASSERT_GT(prompts[i].size() + answers[i].tokens.size(), static_cast<size_t>(table) + 1);
      ASSERT_EQ(answers[i].others.size(), i < 4 ? 0u : 1u);
      ASSERT_NO_FATAL_FAILURE(ExpectTruth(answers[i], prompts[i], options[i], truth->get()));
    }
  }
}

// The first answer is the same, whether the request asks for one answer or for four.
TEST_F(SamplingE2eTest, SeveralAnswersDifferAndTheFirstIsTheOnlyOne) {
  const std::vector<TokenId> prompt = Prompt(20);
  SamplingOptions options;
  options.temperature = 1.5f;
  options.max_tokens = 20;
  options.seed = 5;
  const Answer one = Generate(cluster_->stub(), RequestFor(prompt, options, 1));
  const Answer four = Generate(cluster_->stub(), RequestFor(prompt, options, 4));
  ASSERT_TRUE(one.status.ok() && four.status.ok()) << one.status << four.status;
  EXPECT_EQ(one.ids(), four.ids());
  for (const Answer& other : four.others) EXPECT_NE(other.ids(), one.ids());
  EXPECT_NE(four.others[0].ids(), four.others[1].ids());
}

TEST_F(SamplingE2eTest, AWordInLettersIsKeptOut) {
  v1::GenerateRequest request;
  request.set_text("Tell me a story about a little fox.");
  request.mutable_sampling()->set_max_tokens(120);
  request.mutable_sampling()->set_temperature(0);
  const Answer with = Generate(cluster_->stub(), request);
  ASSERT_TRUE(with.status.ok()) << with.status;
  ASSERT_THAT(with.text, testing::HasSubstr(" fox")) << with.text;
  request.mutable_sampling()->add_bad_words("fox");
  const Answer without = Generate(cluster_->stub(), request);
  ASSERT_TRUE(without.status.ok()) << without.status;
  EXPECT_THAT(without.text, testing::Not(testing::HasSubstr(" fox"))) << without.text;
}

TEST_F(SamplingE2eTest, PromptLogprobsAreThoseOfTransformers) {
  const nlohmann::json golden =
      nlohmann::json::parse(std::ifstream(absl::StrCat(kDemoModel, "/golden.json")));
  // The error of a logit is up to 1e-4 of the largest logit, which is below 40. A logprob is a
  // logit minus the logarithm of a sum over all logits, so the error of a logprob is up to twice
  // the error of a logit.
  constexpr double kTolerance = 2 * 1e-4 * 40;
  int compared = 0;
  double worst = 0;
  for (const nlohmann::json& one : golden["cases"]) {
    SamplingOptions options;
    options.max_tokens = 1;
    options.prompt_logprobs = 3;
    const auto prompt = one["ids"].get<std::vector<TokenId>>();
    const Answer answer = Generate(cluster_->stub(), RequestFor(prompt, options, 1));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.prompt.size(), prompt.size());
    EXPECT_FALSE(answer.prompt[0].has_logprob());
    for (size_t i = 1; i < prompt.size(); ++i) {
      const double expected = one["prompt_logprobs"][i - 1];
      EXPECT_EQ(answer.prompt[i].token_id(), prompt[i]);
      EXPECT_NEAR(answer.prompt[i].logprob(), expected, kTolerance) << one["prompt"] << " " << i;
      worst = std::max(worst, std::abs(answer.prompt[i].logprob() - expected));
      ASSERT_EQ(answer.prompt[i].top_size(), 3);
      for (int k = 0; k < 3; ++k) {
        const nlohmann::json& top = one["prompt_top"][i - 1][k];
        EXPECT_NEAR(answer.prompt[i].top(k).logprob(), top[1].get<double>(), kTolerance);
      }
      EXPECT_EQ(answer.prompt[i].top(0).token_id(), one["prompt_top"][i - 1][0][0]);
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
  std::cout << compared << " logprobs, largest difference " << worst << "\n";
}

}  // namespace
}  // namespace baton
