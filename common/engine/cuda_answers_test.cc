#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/engine/answer_bounds.h"
#include "common/engine/clear_sample.h"
#include "common/engine/engine_host.h"
#include "common/engine/one_process.h"
#include "gtest/gtest.h"
#include "kernels/cuda/open_emulated_device.h"

namespace baton {
namespace {

using nlohmann::json;

// Tokens sampled at the last positions of a text, and the distributions that they came from.
struct Samples {
  int first_position = 0;
  std::vector<std::vector<TokenId>> tokens;  // [options][position]
  std::vector<std::vector<float>> logprobs;  // [position][token id]
};

// Computes the KV of `text`. Then runs one step for each element of `options`, with one row per
// position. All rows read only the KV of `text`, so no sampled token changes another one.
Samples SampleFrom(EngineHost& host, const std::vector<TokenId>& text,
                   absl::Span<const SamplingOptions> options) {
  const int length = static_cast<int>(text.size()), vocab = host.config().vocab;
  const int reach = RopeReach(host.config().rope, length, length);
  const auto blocks =
      host.pool()->Take((length + EngineHost::kBlockTokens - 1) / EngineHost::kBlockTokens).value();
  const auto item = [&](int first, int rows) {
    return PlanItem{.tokens = absl::MakeConstSpan(text).subspan(first, rows),
                    .first_position = first,
                    .blocks = blocks,
                    .original_prompt_tokens = length,
                    .rope_reach = reach};
  };
  Samples samples{.first_position = std::max(1, length - EngineHost::kRows)};
  PromptScores scores = {.prompt = text, .alternatives = vocab};
  for (int first = 0; first < length; first += EngineHost::kRows) {
    StepPlan plan = {{item(first, std::min(EngineHost::kRows, length - first))}};
    plan.items[0].scores = &scores;
    const auto ran = host.engine()->Run(plan);
    EXPECT_TRUE(ran.ok()) << ran.status();
  }
  for (int i = samples.first_position; i < length; ++i) {
    samples.logprobs.emplace_back(vocab);
    for (const auto& [id, logprob] : scores.tokens.at(i).top)
      samples.logprobs.back().at(id) = logprob;
  }
  for (const SamplingOptions& one : options) {
    StepPlan plan;
    for (int i = samples.first_position; i < length; ++i) {
      plan.items.push_back(item(i - 1, 1));
      plan.items.back().sampling = &one;
    }
    const auto ran = host.engine()->Run(plan).value();
    samples.tokens.emplace_back();
    for (const auto& token : ran) samples.tokens.back().push_back(token.value().id);
  }
  host.pool()->Release(blocks);
  return samples;
}

// Returns the largest difference between the cumulative distributions of `a` and `b` over token
// ids. Each token weighs e^(scale * logprob).
double Distance(absl::Span<const float> a, absl::Span<const float> b, double scale) {
  double all[2] = {}, sum[2] = {}, furthest = 0;
  for (const bool added_up : {false, true}) {
    for (size_t i = 0; i < a.size(); ++i) {
      double* const to = added_up ? sum : all;
      to[0] += std::exp(scale * a[i]);
      to[1] += std::exp(scale * b[i]);
      if (added_up) furthest = std::max(furthest, std::fabs(sum[0] / all[0] - sum[1] / all[1]));
    }
  }
  return furthest;
}

double GapOf(const SampledToken& token) { return token.top[0].logprob - token.top[1].logprob; }

class CudaAnswersTest : public testing::TestWithParam<const char*> {
 protected:
  static std::string Folder() {
    return absl::StrCat(BATON_SOURCE_DIR, "/common/model/", GetParam());
  }
  static AnswerBounds Bounds() {
    const std::string folder = GetParam();
    return AnswerBoundsOf(folder.substr(folder.rfind('/') + 1));
  }
  // Returns the prompt of the folder's golden.json, or of its first case.
  static std::vector<TokenId> Prompt() {
    const json golden = json::parse(std::ifstream(Folder() + "/golden.json"));
    return golden.contains("cases") ? golden["cases"][0]["ids"] : golden["prompt"];
  }
};

TEST_P(CudaAnswersTest, AreTheCpusUntilTwoTokensAreNearlyEqual) {
  constexpr int kTokens = 24;
  const double gap = Bounds().gap;
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
  // The device may choose another token than the CPU if both are nearly equally likely. It then
  // goes on from the CPU's token, so that the comparison covers the whole answer.
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

// The CPU samples a text. Then CPU and device sample at every position of this text with the same
// seeds, and the tokens are compared.
TEST_P(CudaAnswersTest, SamplesAreTheCpusWhereTheyAreClear) {
  const double epsilon = Bounds().epsilon;
  const OpenedDevice device = OpenEmulatedDevice(size_t{64} << 20).value();
  const auto cpu = CpuHost(Folder()), cuda = CudaHost(Folder(), device);
  std::vector<SamplingOptions> options(3);
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].temperature = Bounds().temperature;
    options[i].top_p = i == 0 ? 1 : 0.9f;
    options[i].seed = 20261122 + i;
    options[i].answer_index = static_cast<uint32_t>(i);
    options[i].max_tokens = 24;
  }
  std::vector<TokenId> text = Prompt();
  const auto answer =
      GenerateInOneProcess(cpu->engine(), cpu->pool(), cpu->config(), EngineHost::kBlockTokens,
                           text, options[0], /*chunk_tokens=*/32)
          .value();
  for (const SampledToken& token : answer.tokens) text.push_back(token.id);
  const Samples expected = SampleFrom(*cpu, text, options);
  const Samples got = SampleFrom(*cuda, text, options);
  double furthest = 0;
  int compared = 0, unlikely = 0, all = 0;
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    const auto& logprobs = expected.logprobs[i];
    const double scale = 1.0 / options[0].temperature;
    furthest = std::max(furthest, Distance(logprobs, got.logprobs[i], scale));
    const int position = expected.first_position + static_cast<int>(i);
    for (size_t k = 0; k < options.size(); ++k, ++all) {
      const auto clear = ClearSample(logprobs, options[k], position, epsilon);
      if (!clear) continue;
      ++compared;
      unlikely += logprobs[*clear] < *std::max_element(logprobs.begin(), logprobs.end());
      EXPECT_EQ(expected.tokens[k][i], *clear) << "position " << position << ", sample " << k;
      EXPECT_EQ(got.tokens[k][i], *clear) << "position " << position << ", sample " << k;
    }
  }
  RecordProperty("compared", compared);
  RecordProperty("furthest_sum", absl::StrCat(furthest));
  std::printf("%s: %d of %d samples compared, %d not of the likeliest, sums at most %.4f apart\n",
              GetParam(), compared, all, unlikely, furthest);
  EXPECT_LE(furthest, epsilon);
  EXPECT_GE(compared, 16);
  EXPECT_GE(unlikely, 1);
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
    EXPECT_NEAR(*got[i].logprob, *expected[i].logprob, AnswerBoundsOf("demo").gap / 2)
        << "token " << i;
  }
}

}  // namespace
}  // namespace baton
