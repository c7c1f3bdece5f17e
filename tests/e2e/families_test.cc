// Runs small random models of every family through the router, prefill and decode programs, and
// compares the answers with those of transformers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

using google::protobuf::util::MessageDifferencer;
using nlohmann::json;

constexpr double kExact = 1e-4, kHalf = 2e-2;
constexpr int kAlternatives = 20;
constexpr int kContinuation = 24;  // Number of tokens in the continuation of every golden file.

struct Family {
  const char* model;
  double tolerance;  // Max error of a logit, relative to the largest absolute logit.
  // The golden file has a prompt and its continuation. `forced` is the max number of tokens of the
  // continuation that a test may add to the prompt. It is limited for models whose rotary table
  // depends on the prompt's length: a longer prompt would change the table.
  int forced = kContinuation;
};

std::string NameOf(const Family& family) {
  return absl::StrCat(family.model, family.tolerance == kExact ? "_exact" : "_auto");
}
void PrintTo(const Family& family, std::ostream* out) { *out << NameOf(family); }

// Each test starts one cluster, which serves the model of one golden file.
class FamiliesTest : public testing::TestWithParam<Family> {
 protected:
  FamiliesTest()
      : folder_(GetParam().model),
        golden_(json::parse(std::ifstream(folder_.path() + "/golden.json"))),
        prompt_(golden_["prompt"].get<std::vector<int32_t>>()),
        continuation_(golden_["continuation"].get<std::vector<int32_t>>()),
        margins_(golden_["margins"].get<std::vector<double>>()),
        logprobs_(golden_["logprobs"].get<std::vector<double>>()) {
    for (const json& entry : golden_["logits"]) {
      for (const double logit : entry["values"]) largest_ = std::max(largest_, std::abs(logit));
    }
    error_ = 2 * GetParam().tolerance * largest_;
  }

  void SetUp() override {
    ASSERT_EQ(continuation_.size(), static_cast<size_t>(kContinuation));
    ASSERT_EQ(logprobs_.size(), continuation_.size());
    // Exact tests use the numerics f32. With the default numerics, a machine may round the
    // activations of a bf16 model.
    const std::string kv_type = exact() ? "--kv-type=f32" : "--kv-type=auto";
    const std::string numerics = exact() ? "--numerics=f32" : "--numerics=auto";
    const std::string kv_bytes = "--kv-bytes=16777216";
    absl::StatusOr<std::unique_ptr<Cluster>> cluster =
        Cluster::Start({.model = folder_.path(),
                        .prefill_flags = {kv_type, numerics, kv_bytes, "--chunk-tokens=32"},
                        .decode_flags = {kv_type, numerics, kv_bytes}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  bool exact() const { return GetParam().tolerance == kExact; }

  // Returns a request whose prompt is the golden prompt and the first `forced` tokens of the golden
  // continuation. The request asks for the rest of the continuation, or for one token if there is
  // no rest.
  v1::GenerateRequest Request(int forced) const {
    std::vector<int32_t> ids = prompt_;
    ids.insert(ids.end(), continuation_.begin(), continuation_.begin() + forced);
    v1::GenerateRequest request = TokenRequest(ids, std::max(1, kContinuation - forced));
    request.mutable_sampling()->set_logprobs(kAlternatives);
    return request;
  }
  Answer Ask(const v1::GenerateRequest& request) { return Generate(cluster_->stub(), request); }
  static v1::GenerateRequest WithPrompt(v1::GenerateRequest request) {
    request.mutable_sampling()->set_prompt_logprobs(kAlternatives);
    return request;
  }

  void ExpectLogprob(double got, double expected) {
    EXPECT_NEAR(got, expected, error_);
    worst_ = std::max(worst_, std::abs(got - expected));
    ++compared_;
  }

  // Checks every position for which the golden file has logits. The logprobs of the token after
  // that position, and of its alternatives, must equal those computed from the logits.
  void ExpectLogprobsOfGoldenLogits(const Answer& answer) {
    for (const json& entry : golden_["logits"]) {
      const size_t next = entry["position"].get<size_t>() + 1;
      SCOPED_TRACE(absl::StrCat("position ", next));
      ASSERT_LE(next, answer.prompt.size());
      const v1::Token& token = next < answer.prompt.size() ? answer.prompt[next] : answer.tokens[0];
      ASSERT_EQ(token.position(), next);
      std::vector<double> expected = entry["values"];
      const double top = *std::max_element(expected.begin(), expected.end());
      double sum = 0;
      for (const double logit : expected) sum += std::exp(logit - top);
      for (double& logit : expected) logit -= top + std::log(sum);

      ASSERT_TRUE(token.has_logprob());
      ExpectLogprob(token.logprob(), expected.at(token.token_id()));
      ASSERT_EQ(token.top_size(), kAlternatives);
      for (const v1::TopLogprob& one : token.top()) {
        ExpectLogprob(one.logprob(), expected.at(one.token_id()));
      }
      std::sort(expected.begin(), expected.end(), std::greater<>());
      for (int k = 0; k < kAlternatives; ++k) ExpectLogprob(token.top(k).logprob(), expected[k]);
    }
  }

  // Checks a token against token `i` of the golden continuation. `token` must have been computed
  // after the golden prompt and the first `i` tokens of the continuation. Either worker may have
  // computed it.
  void ExpectGoldenAt(int i, const v1::Token& token) {
    SCOPED_TRACE(absl::StrCat("token ", i, " of the continuation, margin ", margins_[i]));
    ASSERT_EQ(token.position(), prompt_.size() + i);
    ASSERT_TRUE(token.has_logprob());
    ASSERT_EQ(token.top_size(), kAlternatives);
    // If the two best tokens are closer than the error, either of them may be first. Even then, the
    // difference of their logprobs must be that of the golden file, which has four digits.
    const double margin = token.top(0).logprob() - token.top(1).logprob();
    EXPECT_NEAR(margin, margins_[i], error_ + 5e-4 * margins_[i]);
    if (margins_[i] > error_) {
      EXPECT_EQ(token.top(0).token_id(), continuation_[i]);
    }
    if (token.token_id() == continuation_[i]) ExpectLogprob(token.logprob(), logprobs_[i]);
  }

  const ServedFolder folder_;
  const json golden_;
  const std::vector<int32_t> prompt_, continuation_;
  const std::vector<double> margins_, logprobs_;
  double largest_ = 0;  // Max absolute logit in the golden file.
  // Max error of a logprob, which is twice the max error of a logit. A logprob is the difference of
  // a logit and the logarithm of a sum of exponentials, and each of them can be wrong by the max
  // error of a logit.
  double error_ = 0;
  std::unique_ptr<Cluster> cluster_;
  double worst_ = 0;
  int compared_ = 0;
};

TEST_P(FamiliesTest, TokensAndLogprobsThroughTheServiceAreThoseOfTransformers) {
  // One request runs alone, then four run together. Only the request that runs alone asks for
  // prompt logprobs.
  std::vector<Answer> answers(5);
  answers[0] = Ask(WithPrompt(Request(0)));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < answers.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = Ask(Request(0)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.tokens.size(), continuation_.size());
    EXPECT_EQ(answer.summary.migrations(), 0u);
    for (int i = 0; i < kContinuation; ++i) {
      EXPECT_TRUE(MessageDifferencer::Equals(answer.tokens[i], answers[0].tokens[i]))
          << "token " << i << ": " << answer.tokens[i].ShortDebugString() << ", alone "
          << answers[0].tokens[i].ShortDebugString();
    }
  }
  if (exact()) {
    ASSERT_EQ(answers[0].ids(), continuation_);
  }

  ExpectLogprobsOfGoldenLogits(answers[0]);
  const int of_logits = static_cast<int>(golden_["logits"].size()) * (1 + 2 * kAlternatives);
  EXPECT_EQ(compared_, of_logits);

  // Compares each token with the golden continuation. The first token of an answer comes from the
  // prefill worker, the others from the decode worker. ExpectGoldenAt checks if a token may differ.
  // After a token that differs, a new request continues from the golden tokens, so that all tokens
  // are compared.
  int decoded = 0;
  Answer answer = answers[0];
  for (int done = 0; done < kContinuation;) {
    for (size_t k = 0; k < answer.tokens.size(); ++k) {
      ExpectGoldenAt(done, answer.tokens[k]);
      decoded += k > 0;
      if (answer.tokens[k].token_id() != continuation_[done++]) break;
    }
    if (done == kContinuation) break;
    answer = Ask(Request(done));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.tokens.size(), continuation_.size() - done);
  }
  EXPECT_GE(decoded, kContinuation / 2);

  // Sends the golden continuation as a part of the prompt, and compares the logprobs that the
  // prefill worker computes for it.
  const int forced = GetParam().forced;
  if (forced > 0) {
    const Answer teacher = Ask(WithPrompt(Request(forced)));
    ASSERT_TRUE(teacher.status.ok()) << teacher.status;
    ASSERT_EQ(teacher.prompt.size(), prompt_.size() + forced);
    compared_ = 0;
    ExpectLogprobsOfGoldenLogits(teacher);
    EXPECT_EQ(compared_, of_logits);
    for (int i = 0; i < forced; ++i) ExpectGoldenAt(i, teacher.prompt[prompt_.size() + i]);
    // A token has the same bits if it is generated as if it is part of the prompt. Compares only
    // until a generated token is not the golden one, because later tokens then follow other text.
    for (int i = 0; i < forced; ++i) {
      const v1::Token& token = answers[0].tokens[i];
      if (token.token_id() != continuation_[i]) break;
      EXPECT_TRUE(MessageDifferencer::Equals(teacher.prompt[prompt_.size() + i], token))
          << "token " << i << ": " << teacher.prompt[prompt_.size() + i].ShortDebugString()
          << ", generated " << token.ShortDebugString();
    }
  }
  // Number of tokens that had to equal the golden ones, because their margin in the golden file is
  // greater than the error.
  const auto decided = std::count_if(margins_.begin(), margins_.end(),
                                     [this](double margin) { return margin > error_; });
  EXPECT_GE(decided, exact() ? kContinuation : kContinuation / 2);
  RecordProperty("largest_difference_of_largest_logit", absl::StrCat(worst_ / largest_));
}

INSTANTIATE_TEST_SUITE_P(
    , FamiliesTest,
    testing::Values(
        Family{"gqa_f32", kExact}, Family{"mha_tied_f16", kExact}, Family{"mha_tied_f16", kHalf},
        Family{"mqa_llama3_f32", kExact}, Family{"gqa_bias_bf16", kExact},
        Family{"gqa_bias_bf16", kHalf}, Family{"llama3_sharded_bf16", kExact},
        Family{"llama3_sharded_bf16", kHalf}, Family{"llama_linear_mixed", kExact},
        Family{"llama_five_dynamic_f32", kExact, 0}, Family{"mistral_window_f32", kExact},
        Family{"mistral_five_mqa_bf16", kExact}, Family{"mistral_five_mqa_bf16", kHalf},
        Family{"mistral_dynamic_f16", kExact, 12}, Family{"qwen2_window_f32", kExact},
        Family{"qwen2_yarn_tied_bf16", kExact}, Family{"qwen2_yarn_tied_bf16", kHalf},
        Family{"qwen2_five_yarn_f32", kExact}, Family{"qwen3_f32", kExact},
        Family{"qwen3_five_layers_bf16", kExact}, Family{"qwen3_five_layers_bf16", kHalf},
        Family{"phi3_window_f32", kExact}, Family{"phi3_long_bf16", kExact},
        Family{"phi3_long_bf16", kHalf}, Family{"phi3_five_crossing_f32", kExact, 8}),
    [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace baton
