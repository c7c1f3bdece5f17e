#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/engine/engine_host.h"
#include "common/engine/one_process.h"
#include "gtest/gtest.h"
#include "kernels/cuda/open_emulated_device.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

TEST(CudaEngineTest, RowsOfOtherSequencesChangeNoBit) {
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_bias_bf16");
  const OpenedDevice device = OpenEmulatedDevice(size_t{64} << 20).value();
  const std::vector<TokenId> prompts[] = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {8}, {2, 7, 1, 8, 2}};
  const SamplingOptions greedy = Greedy(6);
  const auto alone = [&](const std::vector<TokenId>& prompt) {
    const auto host = CudaHost(folder, device);
    return GenerateInOneProcess(host->engine(), host->pool(), host->config(),
                                EngineHost::kBlockTokens, prompt, greedy)
        .value()
        .tokens;
  };
  // Each step has rows of all sequences that are not finished. The longest prompt needs two chunks,
  // the others one. Then each step computes one token per sequence.
  const auto host = CudaHost(folder, device);
  std::vector<TokenId> tokens[3];
  std::vector<BlockId> blocks[3];
  std::vector<SampledToken> answers[3];
  std::vector<int> computed(3);
  for (int i = 0; i < 3; ++i) {
    tokens[i] = prompts[i];
    blocks[i] = host->pool()->Take(3).value();
  }
  for (bool any = true; any;) {
    StepPlan plan;
    std::vector<int> samples;
    for (int i = 0; i < 3; ++i) {
      if (answers[i].size() == 6) continue;
      const int rows = std::min<int>(tokens[i].size() - computed[i], 7);
      const bool last = computed[i] + rows == static_cast<int>(tokens[i].size());
      plan.items.push_back({.tokens = absl::MakeConstSpan(tokens[i]).subspan(computed[i], rows),
                            .first_position = computed[i],
                            .blocks = blocks[i],
                            .sampling = last ? &greedy : nullptr,
                            .original_prompt_tokens = static_cast<int>(prompts[i].size())});
      computed[i] += rows;
      if (last) samples.push_back(i);
    }
    any = !plan.items.empty();
    const auto sampled = host->engine()->Run(plan).value();
    for (size_t j = 0; j < sampled.size(); ++j) {
      answers[samples[j]].push_back(*sampled[j]);
      tokens[samples[j]].push_back(sampled[j]->id);
    }
  }
  for (int i = 0; i < 3; ++i) {
    const auto expected = alone(prompts[i]);
    ASSERT_EQ(expected.size(), answers[i].size());
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_EQ(answers[i][t].id, expected[t].id) << i << ", token " << t;
      EXPECT_EQ(*answers[i][t].logprob, *expected[t].logprob) << i << ", token " << t;
    }
  }
}

TEST(CudaEngineTest, NoScheduleOfTheDeviceChangesAToken) {
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/qwen3_f32");
  std::vector<SampledToken> expected;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    auto runtime = CreateEmulatedRuntime({.seed = seed, .memory_bytes = size_t{64} << 20}).value();
    const OpenedDevice device = {"cuda-emulated", std::move(runtime), EmulatedKernels()};
    const auto host = CudaHost(folder, device);
    const std::vector<TokenId> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
    const auto got =
        GenerateInOneProcess(host->engine(), host->pool(), host->config(), EngineHost::kBlockTokens,
                             prompt, Greedy(5), /*chunk_tokens=*/6)
            .value()
            .tokens;
    if (expected.empty()) expected = got;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].id, expected[i].id) << "seed " << seed;
      EXPECT_EQ(*got[i].logprob, *expected[i].logprob) << "seed " << seed;
    }
  }
}

// Generates an answer that the host samples. A step with a LayerDone callback is always sampled on
// the host.
std::vector<SampledToken> SampledByTheHost(EngineHost& host, std::vector<TokenId> tokens,
                                           const SamplingOptions& options) {
  const int prompt = static_cast<int>(tokens.size());
  TokenHistory history(tokens, prompt);
  const auto blocks = host.pool()->Take(3).value();
  std::vector<SampledToken> answer;
  for (int computed = 0; static_cast<int>(answer.size()) < options.max_tokens;) {
    const StepPlan plan = {{{.tokens = absl::MakeConstSpan(tokens).subspan(computed),
                             .first_position = computed,
                             .blocks = blocks,
                             .sampling = &options,
                             .original_prompt_tokens = prompt,
                             .history = &history}}};
    computed = static_cast<int>(tokens.size());
    answer.push_back(
        *host.engine()->Run(plan, [](int, const std::shared_ptr<DeviceEvent>&) {}).value()[0]);
    tokens.push_back(answer.back().id);
    history.Append(answer.back().id);
  }
  host.pool()->Release(blocks);
  return answer;
}

// Every step is planned before the tokens sampled by the previous step are known.
TEST(CudaEngineTest, WithTheHostOneStepBehindTheAnswersAreTheSame) {
  constexpr int kTokens = 8;
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_bias_bf16");
  const std::vector<TokenId> prompts[] = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {2, 7, 1, 8, 2}};
  SamplingOptions options[] = {Greedy(kTokens), Greedy(kTokens)};
  options[1].temperature = 1.3f;
  options[1].seed = 11;
  options[1].top_k = 40;
  options[1].repetition_penalty = 1.3f;
  options[1].frequency_penalty = 0.2f;
  std::vector<SampledToken> expected[2];
  for (uint64_t seed = 0; seed < 4; ++seed) {
    auto runtime = CreateEmulatedRuntime({.seed = seed, .memory_bytes = size_t{64} << 20}).value();
    const OpenedDevice device = {"cuda-emulated", std::move(runtime), EmulatedKernels()};
    const auto host = CudaHost(folder, device);
    Engine* const engine = host->engine();
    std::vector<SampledToken> got[2];
    std::vector<BlockId> blocks[2];
    std::vector<TokenHistory> histories;  // do not yet hold the tokens that running steps sample
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(engine->SamplesOnDevice(options[i], static_cast<int>(prompts[i].size())));
      if (seed == 0) expected[i] = SampledByTheHost(*host, prompts[i], options[i]);
      blocks[i] = host->pool()->Take(3).value();
      histories.emplace_back(prompts[i], static_cast<int>(prompts[i].size()));
    }
    const auto finish = [&] {
      const auto tokens = engine->Finish().value();
      for (int i = 0; i < 2; ++i) {
        got[i].push_back(*tokens[i]);
        histories[i].Append(tokens[i]->id);
      }
    };
    for (int n = 0; n < kTokens; ++n) {
      StepPlan plan;
      for (int i = 0; i < 2; ++i) {
        const int prompt = static_cast<int>(prompts[i].size());
        plan.items.push_back({.first_position = n == 0 ? 0 : prompt + n - 1,
                              .blocks = blocks[i],
                              .sampling = &options[i],
                              .original_prompt_tokens = prompt,
                              .history = &histories[i],
                              .sequence = static_cast<uint64_t>(i + 1)});
        if (n == 0) {
          plan.items.back().tokens = prompts[i];
        } else {
          plan.items.back().follows = i;
        }
      }
      ASSERT_TRUE(engine->Start(plan).ok());
      if (n > 0) finish();
    }
    finish();
    for (int i = 0; i < 2; ++i) {
      for (int n = 0; n < kTokens; ++n) {
        EXPECT_EQ(got[i][n].id, expected[i][n].id) << "seed " << seed << ", token " << n;
        EXPECT_EQ(*got[i][n].logprob, *expected[i][n].logprob) << "seed " << seed << ", " << n;
      }
    }
  }
}

// The emulated device runs work only when a caller waits for that work. The first step has run when
// its logits in host memory are no longer NaN.
TEST(CudaEngineTest, AStepIsStartedWhileNothingOfTheOneBeforeHasRun) {
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_bias_bf16");
  const OpenedDevice device = OpenEmulatedDevice(size_t{64} << 20).value();
  const auto backend =
      CreateCudaBackend({device.runtime.get(), device.kernels, device.name}).value();
  const auto model = Model::Load(folder, backend.get()).value();
  const KvLayout layout = model->LayoutFor(8, DType::kBF16);
  std::byte* const memory = device.runtime->Allocate(2 * layout.BlockBytes()).value();
  const auto forward = ForwardPass::Create(model.get(), backend.get(), 4).value();
  const size_t vocab = static_cast<size_t>(model->config().vocab);
  const auto logits = backend->AllocateResults(vocab).value();
  const std::vector<BlockId> first = {0}, second = {1};
  const std::vector<TokenId> tokens = {5, 6}, unknown = {0};
  const std::vector<SequenceRows> two = {{0, 1, 0, first}, {1, 1, 0, second}};
  const std::vector<SequenceRows> one = {{0, 1, 1, first}};
  const std::vector<int> both = {0, 1}, only = {0};
  const SampleOptions options[2] = {{.position = 1}, {.position = 2}};
  const std::vector<const SampleOptions*> sample_first = {&options[0], nullptr};
  const std::vector<const SampleOptions*> sample_only = {&options[1]};
  BackendSample sampled[2];
  for (const bool warm : {false, true}) {  // the first round still allocates memory
    std::fill_n(logits.get(), vocab, std::nanf(""));
    const auto any_there = [&] {
      return std::any_of(logits.get(), logits.get() + vocab,
                         [](float l) { return !std::isnan(l); });
    };
    ASSERT_TRUE(
        forward
            ->Start(
                {.tokens = tokens, .sequences = two, .logit_rows = both, .samples = sample_first},
                {memory, layout}, {.logits = {logits.get(), vocab}, .sampled = {&sampled[0], 1}})
            .ok());
    ASSERT_TRUE(forward
                    ->Start({.tokens = unknown,
                             .sequences = one,
                             .logit_rows = only,
                             .follows = only,
                             .samples = sample_only},
                            {memory, layout}, {.sampled = {&sampled[1], 1}})
                    .ok());
    EXPECT_FALSE(warm && any_there());
    ASSERT_TRUE(forward->Finish().ok());
    EXPECT_TRUE(any_there());
    ASSERT_TRUE(forward->Finish().ok());
  }
  const auto host = CudaHost(folder, device);
  const auto expected =
      GenerateInOneProcess(host->engine(), host->pool(), host->config(), EngineHost::kBlockTokens,
                           absl::MakeConstSpan(tokens).first(1), Greedy(2))
          .value()
          .tokens;
  EXPECT_EQ(sampled[0].id, expected[0].id);
  EXPECT_EQ(sampled[1].id, expected[1].id);
  device.runtime->Free(memory);
}

}  // namespace
}  // namespace baton
