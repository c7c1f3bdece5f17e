// Tests that no step allocates device memory or pinned memory.

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

constexpr int kBlockTokens = 16;

struct Case {
  std::string name;
  const char* folder;
  std::function<void(ModelConfig&)> change;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

// Gives the heads a size that the tensor-core kernels accept.
void WideHeads(ModelConfig& config, int heads, int kv_heads) {
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = config.rope.dims = 64;
  config.context = 1024;
}

const Case kCases[] = {
    {"windows", "mistral_window_f32",
     [](ModelConfig& config) {
       WideHeads(config, 4, 2);
       config.windows.assign(config.layers, 0);
       config.windows[0] = 40;
     }},
    {"one_kv_head", "gqa_f32", [](ModelConfig& config) { WideHeads(config, 16, 1); }},
    {"small_heads", "mistral_dynamic_f16", [](ModelConfig&) {}},
    {"long_rope", "phi3_long_bf16", [](ModelConfig&) {}},
};

class CudaMemoryTest : public testing::TestWithParam<Case> {
 protected:
  static ModelConfig Config() {
    ModelConfig config = ReadModelConfig(absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/",
                                                      GetParam().folder))
                             .value();
    GetParam().change(config);
    return config;
  }

  explicit CudaMemoryTest(const StepSize& max = {64, 6, 0}) : max_(max) {
    runtime_ = CreateEmulatedRuntime({.memory_bytes = size_t{128} << 20,
                                      .on_allocate =
                                          [this](absl::string_view call, size_t bytes) {
                                            allocated_.push_back(absl::StrCat(call, " ", bytes));
                                          }})
                   .value();
    backend_ = CreateCudaBackend({runtime_.get(), EmulatedKernels()}).value();
    model_ = Model::WithRandomWeights(Config(), 1, backend_.get()).value();
    layout_ = model_->LayoutFor(kBlockTokens, DType::kBF16);
    context_ = std::min(config().context, 600);
    blocks_.resize(max_.sequences * layout_.BlocksFor(context_));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), random_);
    const size_t bytes = blocks_.size() * layout_.BlockBytes();
    pool_ = runtime_->Allocate(bytes).value();
    const auto stream = runtime_->CreateStream(StreamKind::kCopy).value();
    EXPECT_TRUE(runtime_->Fill(pool_, 0, bytes, *stream).ok());
    EXPECT_TRUE(runtime_->Synchronize(*stream).ok());
  }
  ~CudaMemoryTest() override { runtime_->Free(pool_); }

  const ModelConfig& config() const { return model_->config(); }
  std::unique_ptr<Engine> CreateEngine(int sequences) {
    return Engine::Create(model_.get(), backend_.get(), {pool_, layout_},
                          {max_.rows, sequences, context_})
        .value();
  }

  // Returns options that use every sampling feature as much as a request may. Depending on `i`,
  // some features are left out. For one `i` in eight, the options need sampling on the host.
  SamplingOptions Sampling(int i) const {
    SamplingOptions sampling;
    sampling.max_tokens = context_;
    sampling.seed = 20261122 + i;
    sampling.temperature = i % 4 == 3 ? 0 : 0.8f;
    sampling.top_k = i % 2 == 0 ? 50 : 0;
    sampling.top_p = i % 3 == 0 ? 0.9f : 1;
    sampling.min_p = i % 5 == 0 ? 0.02f : 0;
    sampling.logprobs = i % 3 == 1 ? 0 : SamplingOptions::kMaxLogprobs;
    sampling.repetition_penalty = 1.2f;
    sampling.frequency_penalty = 0.3f;
    sampling.presence_penalty = -0.2f;
    const int tokens = config().vocab;
    for (int id = 0; id < std::min<int>(tokens, SamplingOptions::kMaxLogitBias); ++id) {
      sampling.logit_bias.push_back({id, 0.01f * static_cast<float>(id % 7)});
    }
    for (int id = 0; id < std::min<int>(tokens / 4, SamplingOptions::kMaxBadWords); ++id) {
      sampling.bad_words.push_back({id});
      sampling.stop_tokens.push_back(tokens / 2 + id);
    }
    sampling.min_tokens = context_;
    if (i % 8 == 7) sampling.bad_words.push_back({tokens - 1, tokens - 2});
    return sampling;
  }

  // Runs decode steps for sequences of many lengths. Starts each step before the previous one is
  // finished, as a decode worker does. A token sampled on the device goes straight into the next
  // step.
  void RunAhead(Engine* engine, int sequences) {
    constexpr int kSteps = 4;
    std::vector<TokenId> tokens(context_);
    for (TokenId& token : tokens) token = random_() % config().vocab;
    const size_t each = layout_.BlocksFor(context_);
    std::vector<SamplingOptions> sampling;
    std::vector<TokenHistory> histories;
    std::vector<int> prompts;
    for (int i = 0; i < sequences; ++i) {
      // The last sequence ends at the max length.
      prompts.push_back(i + 1 == sequences ? context_ - kSteps
                                           : 1 + static_cast<int>(random_() % (context_ - kSteps)));
      sampling.push_back(Sampling(first_sequence_ + i));
      histories.emplace_back(absl::MakeConstSpan(tokens).first(prompts[i]), prompts[i]);
    }
    std::vector<bool> on_device;
    for (int i = 0; i < sequences; ++i) {
      on_device.push_back(engine->SamplesOnDevice(sampling[i], prompts[i]));
      sampled_on_device_ += on_device[i];
      sampled_on_host_ += !on_device[i];
    }
    std::vector<std::vector<int>> started;  // sequences of each running step
    std::vector<TokenId> last(sequences);
    const auto finish = [&] {
      const auto ran = engine->Finish();
      ASSERT_TRUE(ran.ok()) << ran.status();
      ASSERT_EQ(ran->size(), started.front().size());
      for (size_t k = 0; k < ran->size(); ++k) {
        const int i = started.front()[k];
        ASSERT_TRUE((*ran)[k].ok()) << (*ran)[k].status();
        last[i] = (*ran)[k]->id;
        histories[i].Append(last[i]);
      }
      started.erase(started.begin());
    };
    for (int n = 0; n < kSteps; ++n) {
      StepPlan plan;
      std::vector<int> members;
      for (int i = 0; i < sequences; ++i) {
        // If the host samples a sequence's tokens, it knows the next one only when the step has
        // ended, and the next step is started before that. So the sequence takes part in every
        // second step.
        if (!on_device[i] && n % 2 == 1) continue;
        const int position = prompts[i] + (on_device[i] ? n : n / 2) - 1;
        PlanItem item = {.first_position = position,
                         .blocks = absl::MakeConstSpan(blocks_).subspan(i * each, each),
                         .sampling = &sampling[i],
                         .original_prompt_tokens = prompts[i],
                         .history = &histories[i],
                         .sequence = static_cast<uint64_t>(first_sequence_ + i + 1)};
        if (n == 0) {
          item.tokens = absl::MakeConstSpan(tokens).subspan(position, 1);
        } else if (on_device[i]) {
          const auto& before = started.back();
          item.follows = std::find(before.begin(), before.end(), i) - before.begin();
        } else {
          item.tokens = absl::MakeConstSpan(&last[i], 1);
        }
        plan.items.push_back(item);
        members.push_back(i);
      }
      const absl::Status status = engine->Start(plan);
      ASSERT_TRUE(status.ok()) << status;
      started.push_back(members);
      max_running_ = std::max(max_running_, engine->running());
      if (n > 0) finish();
      if (HasFatalFailure()) return;
    }
    finish();
    first_sequence_ += sequences;
  }

  // Runs one step with rows[i] rows of sequence i. With `at_the_end`, the last row is at the max
  // length; otherwise the position is random. With `scored`, the rows of every sequence begin at
  // position 0, and the prompt of sequence 0 is scored.
  void Run(Engine* engine, const std::vector<int>& rows, bool at_the_end, bool scored = false) {
    SamplingOptions sampling;
    sampling.logprobs = 3;
    std::vector<TokenId> tokens(context_);
    for (TokenId& token : tokens) token = random_() % config().vocab;
    StepPlan plan;
    PromptScores scores = {.prompt = tokens, .alternatives = 2};
    const size_t each = layout_.BlocksFor(context_);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int last = context_ - rows[i];
      const int position = scored       ? 0
                           : at_the_end ? last
                                        : static_cast<int>(random_() % (last + 1));
      plan.items.push_back({.tokens = absl::MakeConstSpan(tokens).subspan(position, rows[i]),
                            .first_position = position,
                            .blocks = absl::MakeConstSpan(blocks_).subspan(i * each, each),
                            .sampling = i > 0 && random_() % 4 == 0 ? nullptr : &sampling,
                            .original_prompt_tokens = position + rows[i],
                            .scores = scored && i == 0 ? &scores : nullptr});
    }
    const auto ran = engine->Run(plan);
    ASSERT_TRUE(ran.ok()) << ran.status();
    for (const auto& token : *ran) EXPECT_TRUE(token.ok()) << token.status();
    EXPECT_TRUE(scores.status.ok()) << scores.status;
    if (scored) {
      EXPECT_EQ(scores.tokens.size(), static_cast<size_t>(std::min(rows[0] + 1, context_)));
    }
  }

  const StepSize max_;
  std::mt19937 random_{20261122};
  std::vector<std::string> allocated_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  int context_ = 0;
  std::vector<BlockId> blocks_;
  std::byte* pool_ = nullptr;
  int first_sequence_ = 0, max_running_ = 0, sampled_on_device_ = 0, sampled_on_host_ = 0;
};

TEST_P(CudaMemoryTest, NoStepAllocates) {
  const auto engine = CreateEngine(max_.sequences);
  EXPECT_THAT(allocated_, testing::Not(testing::IsEmpty())) << "they are seen";
  allocated_.clear();
  const int rows = std::min(max_.rows, context_);
  Run(engine.get(), {rows}, true);
  Run(engine.get(), {rows}, false, /*scored=*/true);
  for (int batch = 1; batch <= max_.sequences; ++batch) {
    Run(engine.get(), std::vector<int>(batch, 1), true);
    // Gives every sequence the same small number of rows. This is too few for the prefill attention
    // kernel, so as many sequences as possible use split attention, which needs the most memory for
    // partial results.
    Run(engine.get(), std::vector<int>(batch, max_.rows / max_.sequences), true);
  }
  for (int i = 0; i < 8; ++i) {
    std::vector<int> chunks(1 + random_() % max_.sequences);
    for (int& chunk : chunks) chunk = 1 + random_() % (rows / chunks.size());
    Run(engine.get(), chunks, i % 2 == 0);
  }
  for (const int batch : {1, 2, max_.sequences}) {
    // The first step of a batch size runs directly. The second one is recorded as a graph.
    for (int i = 0; i < 2; ++i) RunAhead(engine.get(), batch);
  }
  EXPECT_EQ(max_running_, Engine::kMaxSteps);
  EXPECT_GT(sampled_on_device_, 3 * sampled_on_host_);
  EXPECT_GT(sampled_on_host_, 0);
  EXPECT_THAT(allocated_, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Emulated, CudaMemoryTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton
