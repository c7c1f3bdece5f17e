#include "common/model/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <ostream>
#include <random>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/model/model.h"
#include "common/model/reference_backend.h"
#include "common/model/test_folder.h"
#include "kernels/cpu/cpu_backend.h"

namespace baton {
namespace {

using nlohmann::json;

std::unique_ptr<Backend> CreateBackend(absl::string_view name) {
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  const CpuNumerics numerics = name == "amx"           ? CpuNumerics::kAmx
                               : name == "avx512-bf16" ? CpuNumerics::kAvx512Bf16
                               : name == "q8"          ? CpuNumerics::kQ8
                                                       : CpuNumerics::kF32;
  auto backend = CreateCpuBackend({.threads = 2, .numerics = numerics});
  if (!backend.ok()) {
    // This machine lacks the instruction set. The portable code gives the same bits, only slower.
    backend = CreateCpuBackend(
        {.threads = 2, .isa = CpuBackendOptions::Isa::kPortable, .numerics = numerics});
  }
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

int Best(absl::Span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// A model with its own pool. Blocks are in random order and filled with NaN, which shows every read
// of a slot that was not written.
class Fixture {
 public:
  Fixture(absl::string_view folder, absl::string_view backend, DType kv_type, int block_tokens = 8)
      : backend_(CreateBackend(backend)) {
    auto model = Model::Load(std::string(folder), backend_.get());
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    pass_ = *ForwardPass::Create(model_.get(), backend_.get(), kMaxRows);
    layout_ = model_->LayoutFor(block_tokens, kv_type);
    const int blocks = 4 * layout_.BlocksFor(kMaxRows);
    pool_.assign(blocks * layout_.BlockBytes(), std::byte{0xff});
    free_.resize(blocks);
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
  }

  static constexpr int kMaxRows = 256;

  const Model& model() const { return *model_; }
  ForwardPass& pass() { return *pass_; }
  const KvLayout& layout() const { return layout_; }
  KvView kv() { return {.data = pool_.data(), .layout = layout_}; }
  int vocab() const { return model_->config().vocab; }

  std::vector<BlockId> TakeBlocks(int tokens) {
    std::vector<BlockId> blocks(free_.end() - layout_.BlocksFor(tokens), free_.end());
    free_.resize(free_.size() - blocks.size());
    return blocks;
  }
  void GiveBlocks(absl::Span<const BlockId> blocks) {
    free_.insert(free_.end(), blocks.begin(), blocks.end());
  }

  // Sets the rotary table for the following runs. The table may depend on the length of the prompt
  // and on the length of the sequence so far.
  void UseRopeOf(int prompt_tokens, int tokens) {
    reach_ = RopeReach(model_->config().rope, prompt_tokens, tokens);
  }
  int reach() const { return reach_; }

  // Runs `tokens` of one sequence from `position` on, and returns the logits of the given rows.
  std::vector<float> Run(absl::Span<const TokenId> tokens, int position,
                         absl::Span<const BlockId> blocks, absl::Span<const int> logit_rows) {
    const SequenceRows sequence{
        .rows = static_cast<int>(tokens.size()), .first_position = position, .blocks = blocks};
    std::vector<float> logits(logit_rows.size() * vocab());
    const auto status = pass_->Run({.tokens = tokens,
                                    .sequences = {&sequence, 1},
                                    .logit_rows = logit_rows,
                                    .rope_reach = {&reach_, 1}},
                                   kv(), absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }

  uint64_t HashKv(absl::Span<const BlockId> blocks) const {
    uint64_t hash = 0;
    for (const BlockId block : blocks) {
      hash = Hash64(pool_.data() + layout_.BlockOffset(block), layout_.BlockBytes(), hash);
    }
    return hash;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<ForwardPass> pass_;
  KvLayout layout_;
  std::vector<std::byte> pool_;
  std::vector<BlockId> free_;
  int reach_ = kEndlessReach;
};

std::vector<int> AllRows(int rows) {
  std::vector<int> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Tolerances: kRounding is float32 rounding, with a factor of about 6 above the largest error of
// the GGUF files, 1.7e-6. kQ8 is for activations that are rounded to 8 bits: the largest error is
// 0.051.
constexpr double kExact = 1e-4, kHalf = 2e-2, kRounding = 1e-5, kQ8 = 8e-2;

struct Case {
  const char* model;
  const char* backend;
  DType kv_type;
  double tolerance;  // relative to the largest absolute logit
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << absl::StrReplaceAll(c.model, {{".", "_"}}) << "_kv_" << std::string(DTypeName(c.kv_type));
}

// Returns the path of the answers of transformers with a model of testdata.
std::string GoldenOf(absl::string_view model) {
  if (absl::ConsumeSuffix(&model, ".gguf")) return TestData(absl::StrCat(model, ".json"));
  return TestData(absl::StrCat(model, "/golden.json"));
}

class GoldenTest : public testing::TestWithParam<Case> {
 protected:
  GoldenTest()
      : fixture_(TestData(GetParam().model), GetParam().backend, GetParam().kv_type),
        golden_(json::parse(std::ifstream(GoldenOf(GetParam().model)))),
        prompt_(golden_["prompt"].get<std::vector<TokenId>>()) {
    fixture_.UseRopeOf(prompt_.size(), prompt_.size());
  }

  Fixture fixture_;
  const json golden_;
  const std::vector<TokenId> prompt_;
};

TEST_P(GoldenTest, LogitsAreThoseOfTransformers) {
  std::vector<int> positions;
  for (const json& entry : golden_["logits"]) positions.push_back(entry["position"]);
  const auto blocks = fixture_.TakeBlocks(prompt_.size());
  const auto logits = fixture_.Run(prompt_, 0, blocks, positions);
  double largest = 0, error = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto expected = golden_["logits"][i]["values"].get<std::vector<double>>();
    ASSERT_EQ(expected.size(), static_cast<size_t>(fixture_.vocab()));
    for (size_t token = 0; token < expected.size(); ++token) {
      const double got = logits[i * expected.size() + token];
      ASSERT_TRUE(std::isfinite(got));
      largest = std::max(largest, std::abs(expected[token]));
      error = std::max(error, std::abs(got - expected[token]));
    }
  }
  RecordProperty("relative_error", absl::StrCat(error / largest));
  EXPECT_LE(error, GetParam().tolerance * largest) << "largest logit " << largest;
}

TEST_P(GoldenTest, GreedyAnswerGoesOnAsThatOfTransformers) {
  const auto continuation = golden_["continuation"].get<std::vector<TokenId>>();
  const auto margins = golden_["margins"].get<std::vector<double>>();
  const auto blocks = fixture_.TakeBlocks(prompt_.size() + continuation.size());
  auto logits =
      fixture_.Run(prompt_, 0, blocks, std::vector<int>{static_cast<int>(prompt_.size()) - 1});
  int compared = 0;
  std::vector<TokenId> tokens = prompt_;
  for (size_t i = 0; i < continuation.size(); ++i) {
    const float best = *std::max_element(logits.begin(), logits.end());
    // Compares only if the best token is clear: each of the two best logits may be off by the
    // tolerance.
    if (margins[i] > 2 * GetParam().tolerance * std::abs(best)) {
      EXPECT_EQ(Best(logits), continuation[i]) << "token " << i << ", margin " << margins[i];
      ++compared;
    }
    tokens.push_back(continuation[i]);
    int computed = tokens.size() - 1;
    if (static_cast<int>(tokens.size()) > fixture_.reach()) {
      fixture_.UseRopeOf(prompt_.size(), tokens.size());
      computed = 0;
    }
    logits = fixture_.Run(absl::MakeSpan(tokens).subspan(computed), computed, blocks,
                          std::vector<int>{static_cast<int>(tokens.size()) - 1 - computed});
  }
  // Few tokens are clear within a wide tolerance.
  EXPECT_GT(compared, GetParam().tolerance > kHalf ? 0 : static_cast<int>(continuation.size()) / 2);
}

TEST_P(GoldenTest, ChunksOfAnySizeGiveTheBitsOfOnePrefill) {
  const int tokens = prompt_.size();
  const auto one_shot = fixture_.TakeBlocks(tokens);
  const auto expected = fixture_.Run(prompt_, 0, one_shot, AllRows(tokens));
  for (const int chunk : {1, 7, 16}) {
    const auto blocks = fixture_.TakeBlocks(tokens);
    std::vector<float> logits;
    for (int first = 0; first < tokens; first += chunk) {
      const int rows = std::min(chunk, tokens - first);
      const auto part =
          fixture_.Run(absl::MakeSpan(prompt_).subspan(first, rows), first, blocks, AllRows(rows));
      logits.insert(logits.end(), part.begin(), part.end());
    }
    ASSERT_EQ(logits.size(), expected.size());
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
        << "chunks of " << chunk;
    EXPECT_EQ(fixture_.HashKv(blocks), fixture_.HashKv(one_shot)) << "chunks of " << chunk;
  }
}

TEST_P(GoldenTest, RowsOfOtherSequencesInTheStepChangeNoBit) {
  const int tokens = prompt_.size();
  const auto alone = fixture_.TakeBlocks(tokens);
  const auto expected = fixture_.Run(prompt_, 0, alone, AllRows(tokens));

  // One step holds the end of the prompt, then the reversed prompt, then a prompt of one token.
  const int head = tokens / 3;
  const auto blocks = fixture_.TakeBlocks(tokens);
  fixture_.Run(absl::MakeSpan(prompt_).subspan(0, head), 0, blocks, {});
  const std::vector<TokenId> other(prompt_.rbegin() + tokens / 2, prompt_.rend());
  const auto other_blocks = fixture_.TakeBlocks(other.size()),
             short_blocks = fixture_.TakeBlocks(1);
  std::vector<TokenId> step(prompt_.begin() + head, prompt_.end());
  const int own = step.size(), others = other.size();
  step.insert(step.end(), other.begin(), other.end());
  step.push_back(5);
  const SequenceRows sequences[] = {
      {.first_row = 0, .rows = own, .first_position = head, .blocks = blocks},
      {.first_row = own, .rows = others, .first_position = 0, .blocks = other_blocks},
      {.first_row = own + others, .rows = 1, .first_position = 0, .blocks = short_blocks}};
  const auto rows = AllRows(own);
  const RopeConfig& rope = fixture_.model().config().rope;
  const int reaches[] = {RopeReach(rope, tokens, tokens), RopeReach(rope, others, others),
                         RopeReach(rope, 1, 1)};
  std::vector<float> logits(own * fixture_.vocab());
  const auto status = fixture_.pass().Run(
      {.tokens = step, .sequences = sequences, .logit_rows = rows, .rope_reach = reaches},
      fixture_.kv(), absl::MakeSpan(logits));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(logits.data(), expected.data() + head * fixture_.vocab(),
                        logits.size() * sizeof(float)),
            0);
  EXPECT_EQ(fixture_.HashKv(blocks), fixture_.HashKv(alone));
}

TEST_P(GoldenTest, LayersAreReportedInOrderOnceTheirKvIsThere) {
  const auto blocks = fixture_.TakeBlocks(prompt_.size());
  const SequenceRows sequence{.rows = static_cast<int>(prompt_.size()), .blocks = blocks};
  std::vector<int> layers;
  const KvView kv = fixture_.kv();
  const auto written = [&](int layer) {
    uint32_t value = 0;
    std::memcpy(&value, kv.data + kv.layout.HeadOffset(blocks[0], layer, KvLayout::kValues, 0),
                DTypeBytes(kv.layout.type));
    return value != (DTypeBytes(kv.layout.type) == 4 ? 0xffffffff : 0xffff);
  };
  const auto status =
      fixture_.pass().Run({.tokens = prompt_, .sequences = {&sequence, 1}}, kv, {},
                          [&](int layer, const std::shared_ptr<DeviceEvent>& event) {
                            EXPECT_TRUE(event == nullptr);
                            layers.push_back(layer);
                            EXPECT_TRUE(written(layer));
                            if (layer + 1 < kv.layout.layers) {
                              EXPECT_FALSE(written(layer + 1));
                            }
                          });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(layers, AllRows(kv.layout.layers));
}

std::vector<Case> Cases(const char* backend) {
  return {{"gqa_f32", backend, DType::kF32, kExact},
          {"mqa_llama3_f32", backend, DType::kF32, kExact},
          {"mha_tied_f16", backend, DType::kF32, kExact},
          {"mha_tied_f16", backend, DType::kF16, kHalf},
          {"gqa_bias_bf16", backend, DType::kF32, kExact},
          {"gqa_bias_bf16", backend, DType::kBF16, kHalf},
          {"llama3_sharded_bf16", backend, DType::kF32, kExact},
          {"llama3_sharded_bf16", backend, DType::kBF16, kHalf},
          {"llama_linear_mixed", backend, DType::kF32, kExact},
          {"llama_five_dynamic_f32", backend, DType::kF32, kExact},
          {"mistral_window_f32", backend, DType::kF32, kExact},
          {"mistral_five_mqa_bf16", backend, DType::kF32, kExact},
          {"mistral_five_mqa_bf16", backend, DType::kBF16, kHalf},
          {"mistral_dynamic_f16", backend, DType::kF32, kExact},
          {"mistral_dynamic_f16", backend, DType::kF16, kHalf},
          {"qwen2_window_f32", backend, DType::kF32, kExact},
          {"qwen2_yarn_tied_bf16", backend, DType::kF32, kExact},
          {"qwen2_yarn_tied_bf16", backend, DType::kBF16, kHalf},
          {"qwen2_five_yarn_f32", backend, DType::kF32, kExact},
          {"qwen3_f32", backend, DType::kF32, kExact},
          {"qwen3_five_layers_bf16", backend, DType::kF32, kExact},
          {"qwen3_five_layers_bf16", backend, DType::kBF16, kHalf},
          {"phi3_window_f32", backend, DType::kF32, kExact},
          {"phi3_long_bf16", backend, DType::kF32, kExact},
          {"phi3_long_bf16", backend, DType::kBF16, kHalf},
          {"phi3_five_crossing_f32", backend, DType::kF32, kExact}};
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenTest, testing::ValuesIn(Cases("cpu")),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Reference, GoldenTest, testing::ValuesIn(Cases("reference")),
                         testing::PrintToStringParamName());

// Returns the cases for backends that round activations to bf16. Their tolerance is as wide as that
// of the cases with KV in bf16.
std::vector<Case> Bf16Cases() {
  std::vector<Case> cases;
  for (const char* backend : {"amx", "avx512-bf16"}) {
    for (const char* model : {"gqa_bias_bf16", "llama3_sharded_bf16", "mistral_five_mqa_bf16",
                              "qwen2_yarn_tied_bf16", "qwen3_five_layers_bf16", "phi3_long_bf16"}) {
      cases.push_back({model, backend, DType::kBF16, kHalf});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Bf16Gemms, GoldenTest, testing::ValuesIn(Bf16Cases()),
                         [](const auto& info) {
                           return absl::StrCat(
                               info.param.model,
                               absl::string_view(info.param.backend) == "amx" ? "_amx" : "_dot");
                         });

// Returns the files that make_gguf.py made with llama.cpp's own tools: `plain` ones, or those with
// quantised weights.
std::vector<Case> GgufCases(bool plain, const char* backend, double tolerance) {
  const std::vector<const char*> models =
      plain ? std::vector{"qwen3.F32.gguf", "phi3.F16.gguf", "qwen2.BF16.gguf"}
            : std::vector{"llama.Q4_0.gguf", "qwen2.Q4_1.gguf", "qwen3.Q5_0.gguf",
                          "phi3.Q5_1.gguf",  "llama.Q8_0.gguf", "llama.Q4_K.gguf",
                          "phi3.Q5_K.gguf",  "qwen3.Q6_K.gguf", "qwen2.Q4_K_M.gguf"};
  std::vector<Case> cases;
  for (const char* model : models) cases.push_back({model, backend, DType::kF32, tolerance});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(GgufPlain, GoldenTest,
                         testing::ValuesIn(GgufCases(true, "cpu", kRounding)),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(GgufQuantised, GoldenTest,
                         testing::ValuesIn(GgufCases(false, "cpu", kRounding)),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(GgufQ8, GoldenTest, testing::ValuesIn(GgufCases(false, "q8", kQ8)),
                         testing::PrintToStringParamName());

// Runs the model of common/model/demo token by token, and compares it with its golden.json.
class DemoModelTest : public testing::TestWithParam<Case> {};

TEST_P(DemoModelTest, GreedyAnswersAreThoseOfTransformers) {
  const std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/common/model/demo");
  const json golden = json::parse(std::ifstream(folder + "/golden.json"));
  Fixture fixture(folder, GetParam().backend, GetParam().kv_type);
  int compared = 0, tokens = 0;
  for (const json& answer : golden["cases"]) {
    const auto prompt = answer["ids"].get<std::vector<TokenId>>();
    const auto greedy = answer["greedy"].get<std::vector<TokenId>>();
    const auto margins = answer["margins"].get<std::vector<double>>();
    const auto blocks = fixture.TakeBlocks(prompt.size() + greedy.size());
    auto logits =
        fixture.Run(prompt, 0, blocks, std::vector<int>{static_cast<int>(prompt.size()) - 1});
    for (size_t i = 0; i < greedy.size(); ++i) {
      float largest = 0;
      for (const float logit : logits) largest = std::max(largest, std::abs(logit));
      // Compares only if the best token is clear: each of the two best logits may be off by the
      // tolerance. In any case, the run goes on with the expected token.
      if (margins[i] > 2 * GetParam().tolerance * largest) {
        EXPECT_EQ(Best(logits), greedy[i])
            << answer["prompt"] << ", token " << i << ", margin " << margins[i];
        ++compared;
      }
      logits = fixture.Run({&greedy[i], 1}, prompt.size() + i, blocks, std::vector<int>{0});
    }
    tokens += greedy.size();
    fixture.GiveBlocks(blocks);
  }
  EXPECT_GT(tokens, 0);
  EXPECT_GT(compared, tokens / 2);
  RecordProperty("compared", absl::StrCat(compared, " of ", tokens));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DemoModelTest,
                         testing::Values(Case{"demo", "cpu", DType::kF32, kExact},
                                         Case{"demo", "cpu", DType::kBF16, kHalf},
                                         Case{"demo", "amx", DType::kBF16, kHalf}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.backend, "_",
                                               std::string(DTypeName(info.param.kv_type)));
                         });

}  // namespace
}  // namespace baton
