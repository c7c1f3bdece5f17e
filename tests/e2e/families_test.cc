// Small random models of every family, through router, prefill and decode programs, against what
// transformers answers.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr double kExact = 1e-4, kHalf = 2e-2;

struct Family {
  const char* model;
  double tolerance;  // of the largest absolute logit
};

class FamiliesTest : public testing::TestWithParam<Family> {};

TEST_P(FamiliesTest, GreedyTokensAndLogprobsThroughTheServiceAreThoseOfTransformers) {
  const ServedFolder folder(GetParam().model);
  const json golden = json::parse(std::ifstream(folder.path() + "/golden.json"));
  const auto prompt = golden["prompt"].get<std::vector<int32_t>>();
  const auto continuation = golden["continuation"].get<std::vector<int32_t>>();
  const auto margins = golden["margins"].get<std::vector<double>>();
  const auto logprobs = golden["logprobs"].get<std::vector<double>>();
  double largest = 0;
  for (const json& entry : golden["logits"]) {
    for (const double logit : entry["values"].get<std::vector<double>>()) {
      largest = std::max(largest, std::abs(logit));
    }
  }
  // An error of every logit by the tolerance moves a difference of two by twice that.
  const double error = 2 * GetParam().tolerance * largest;

  // Types and orders of products of the machine's own choice round activations of bf16 models.
  const bool exact = GetParam().tolerance == kExact;
  const std::string kv_type = exact ? "--kv-type=f32" : "--kv-type=auto";
  const std::string numerics = exact ? "--numerics=f32" : "--numerics=auto";
  const std::string kv_bytes = "--kv-bytes=16777216";
  absl::StatusOr<std::unique_ptr<Cluster>> cluster =
      Cluster::Start({.model = folder.path(),
                      .prefill_flags = {kv_type, numerics, kv_bytes, "--chunk-tokens=32"},
                      .decode_flags = {kv_type, numerics, kv_bytes}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  v1::GenerateRequest request = TokenRequest(prompt, static_cast<int>(continuation.size()));
  request.mutable_sampling()->set_logprobs(0);

  // Alone, then beside others.
  std::vector<Answer> answers(5);
  answers[0] = Generate((*cluster)->stub(), request);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < answers.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = Generate((*cluster)->stub(), request); });
  }
  for (std::thread& thread : threads) thread.join();

  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.tokens.size(), continuation.size());
    EXPECT_EQ(answer.summary.migrations(), 0u);
    for (size_t i = 0; i < continuation.size(); ++i) {
      // Where the two best are closer than that, the answers may part, and rightly.
      if (answer.tokens[i].token_id() != continuation[i]) {
        EXPECT_LE(margins[i], error) << "token " << i;
        break;
      }
      EXPECT_NEAR(answer.tokens[i].logprob(), logprobs[i], error) << "token " << i;
      EXPECT_EQ(answer.tokens[i].token_id(), answers[0].tokens[i].token_id()) << "token " << i;
      EXPECT_EQ(answer.tokens[i].logprob(), answers[0].tokens[i].logprob()) << "token " << i;
    }
  }
  if (exact) {
    EXPECT_EQ(answers[0].ids(), continuation);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , FamiliesTest,
    testing::Values(Family{"llama_linear_mixed", kExact}, Family{"llama_five_dynamic_f32", kExact},
                    Family{"mistral_window_f32", kExact}, Family{"mistral_five_mqa_bf16", kExact},
                    Family{"mistral_five_mqa_bf16", kHalf}, Family{"mistral_dynamic_f16", kExact},
                    Family{"qwen2_window_f32", kExact}, Family{"qwen2_yarn_tied_bf16", kExact},
                    Family{"qwen2_yarn_tied_bf16", kHalf}, Family{"qwen2_five_yarn_f32", kExact},
                    Family{"qwen3_f32", kExact}, Family{"qwen3_five_layers_bf16", kExact},
                    Family{"qwen3_five_layers_bf16", kHalf}, Family{"phi3_window_f32", kExact},
                    Family{"phi3_long_bf16", kExact}, Family{"phi3_long_bf16", kHalf},
                    Family{"phi3_five_crossing_f32", kExact}),
    [](const auto& info) {
      return absl::StrCat(info.param.model, info.param.tolerance == kExact ? "_exact" : "_auto");
    });

}  // namespace
}  // namespace baton
