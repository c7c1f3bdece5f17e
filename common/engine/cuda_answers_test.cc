#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/engine/engine_host.h"
#include "common/engine/one_process.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using nlohmann::json;

// Logprobs of the two backends may be apart by half of this, in nats: bf16 weights, activations and
// KV against float arithmetic. So where the best two of the CPU are further apart, both choose the
// same token. Logits of the demo model, which is trained, are larger.
constexpr double kGap = 0.2, kDemoGap = 0.3;

double GapOf(const SampledToken& token) { return token.top[0].logprob - token.top[1].logprob; }

class CudaAnswersTest : public testing::TestWithParam<const char*> {
 protected:
  static std::string Folder() {
    return absl::StrCat(BATON_SOURCE_DIR, "/common/model/", GetParam());
  }
  // That of the folder's golden, or of the first of them.
  static std::vector<TokenId> Prompt() {
    const json golden = json::parse(std::ifstream(Folder() + "/golden.json"));
    return golden.contains("cases") ? golden["cases"][0]["ids"] : golden["prompt"];
  }
};

TEST_P(CudaAnswersTest, AreTheCpusUntilTwoTokensAreNearlyEqual) {
  constexpr int kTokens = 24;
  const double gap = GetParam() == std::string("demo") ? kDemoGap : kGap;
  const auto prompt = Prompt();
  const OpenedDevice device = OpenEmulatedDevice(size_t{64} << 20).value();
  const auto cpu = CpuHost(Folder()), cuda = CudaHost(Folder(), device);
  const auto generate = [&](EngineHost& host, const std::vector<TokenId>& tokens, int generated) {
    return GenerateInOneProcess(host.engine(), host.pool(), host.config(), EngineHost::kBlockTokens,
                                tokens, Greedy(generated), /*chunk_tokens=*/32,
                                static_cast<int>(prompt.size()))
        .value()
        .tokens;
  };
  const auto expected = generate(*cpu, prompt, kTokens);
  // Goes on behind every near tie with the CPU's choice, so that all of the answer is compared.
  std::vector<SampledToken> got;
  double furthest = 0;
  int compared = 0;
  while (got.size() < expected.size()) {
    std::vector<TokenId> tokens = prompt;
    for (size_t i = 0; i < got.size(); ++i) tokens.push_back(expected[i].id);
    const auto more = generate(*cuda, tokens, kTokens);
    for (const SampledToken& token : more) {
      const size_t i = got.size();
      got.push_back(token);
      if (GapOf(expected[i]) >= gap) {
        ASSERT_EQ(token.id, expected[i].id) << "token " << i << ", gap " << GapOf(expected[i]);
        ++compared;
      }
      for (const TokenLogprob& a : token.top) {
        for (const TokenLogprob& b : expected[i].top) {
          if (a.id == b.id) furthest = std::max(furthest, std::fabs(double{a.logprob} - b.logprob));
        }
      }
      if (token.id != expected[i].id) break;
    }
  }
  RecordProperty("compared", compared);
  RecordProperty("furthest_logprob", absl::StrCat(furthest));
  std::printf("%s: %d of %zu tokens compared, logprobs at most %.4f apart\n", GetParam(), compared,
              expected.size(), furthest);
  EXPECT_LE(furthest, gap / 2);
  EXPECT_GE(compared, kTokens / 4);
  EXPECT_EQ(cuda->free_blocks(), EngineHost::kBlocks);
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, CudaAnswersTest,
    testing::Values("demo", "testdata/gqa_bias_bf16", "testdata/gqa_f32",
                    "testdata/llama3_sharded_bf16", "testdata/llama_five_dynamic_f32",
                    "testdata/llama_linear_mixed", "testdata/mha_tied_f16",
                    "testdata/mistral_dynamic_f16", "testdata/mistral_five_mqa_bf16",
                    "testdata/mistral_window_f32", "testdata/mqa_llama3_f32",
                    "testdata/phi3_five_crossing_f32", "testdata/phi3_long_bf16",
                    "testdata/phi3_window_f32", "testdata/qwen2_five_yarn_f32",
                    "testdata/qwen2_window_f32", "testdata/qwen2_yarn_tied_bf16",
                    "testdata/qwen3_f32", "testdata/qwen3_five_layers_bf16"),
    [](const auto& info) {
      std::string name = info.param;
      return name.substr(name.rfind('/') + 1);
    });

TEST(CudaEngineTest, PromptsAreScoredAsOnTheCpu) {
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/demo");
  const OpenedDevice device = OpenEmulatedDevice(size_t{64} << 20).value();
  const json golden = json::parse(std::ifstream(folder + "/golden.json"))["cases"][1];
  std::vector<TokenId> prompt = golden["ids"];
  for (const TokenId token : golden["greedy"]) prompt.push_back(token);
  SamplingOptions scored = Greedy(1);
  scored.prompt_logprobs = 0;
  const auto score = [&](EngineHost& host) {
    return GenerateInOneProcess(host.engine(), host.pool(), host.config(), EngineHost::kBlockTokens,
                                prompt, scored, /*chunk_tokens=*/24)
        .value()
        .prompt;
  };
  const auto expected = score(*CpuHost(folder)), got = score(*CudaHost(folder, device));
  ASSERT_EQ(got.size(), prompt.size());
  ASSERT_EQ(expected.size(), prompt.size());
  for (size_t i = 1; i < prompt.size(); ++i) {
    EXPECT_NEAR(*got[i].logprob, *expected[i].logprob, kDemoGap / 2) << "token " << i;
  }
}

}  // namespace
}  // namespace baton
