#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "common/model/model_folder.h"
#include "common/model/reference_backend.h"
#include "common/model/source/gguf_bytes.h"
#include "common/model/source/model_name.h"
#include "common/model/test_folder.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/formats/element.h"

// Models as GGUF files give the logits of the folders that they were made from.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns the name that convert_hf_to_gguf.py gives to a tensor.
std::string GgufName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"model.layers.", "blk."},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.qkv_proj", "attn_qkv"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"mlp.gate_up_proj", "ffn_up"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}});
}

// Returns the rows of q or k in the order of GGUF files of `llama`, in which rotary pairs lie
// beside each other.
std::string Interleaved(const std::string& bytes, int head_dim, size_t rows) {
  const size_t row_bytes = bytes.size() / rows;
  std::string out(bytes.size(), '\0');
  for (size_t row = 0; row < rows; ++row) {
    const size_t head = row / head_dim * head_dim, i = row % head_dim, half = head_dim / 2;
    const size_t to = head + (i < half ? 2 * i : 2 * (i - half) + 1);
    std::memcpy(&out[to * row_bytes], &bytes[row * row_bytes], row_bytes);
  }
  return out;
}

// Quantises values to blocks of q8_0, or of q4_0, in a simple way.
std::string Quantised(const std::vector<float>& values, bool four_bits) {
  std::string out;
  for (size_t begin = 0; begin < values.size(); begin += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[begin + i]));
    char scale[2];
    WriteElement(DType::kF16, largest / (four_bits ? 7 : 127), scale);
    const float exact = ReadElement(DType::kF16, scale);
    const auto quant = [&](size_t i) {
      return exact == 0 ? 0 : static_cast<int>(std::lround(values[begin + i] / exact));
    };
    out.append(scale, 2);
    for (size_t i = 0; i < (four_bits ? 16u : 32u); ++i) {
      out.push_back(four_bits ? static_cast<char>((quant(i) + 8) | (quant(i + 16) + 8) << 4)
                              : static_cast<char>(quant(i)));
    }
  }
  return out;
}

struct Form {
  const char* family;  // name in GGUF files
  const char* folder;  // in testdata
};

class GgufModelTest : public testing::Test {
 protected:
  // Writes the folder as a GGUF file, with matrices of this format, or as they are.
  std::string Write(const Form& form, std::optional<WeightFormat> matrices = {}) {
    const std::string folder = TestData(form.folder), prefix = absl::StrCat(form.family, ".");
    const ModelConfig config = ReadModelConfig(folder).value();
    const Checkpoint checkpoint = Checkpoint::Open(folder).value();
    GgufBytes bytes;
    bytes.SetText("general.architecture", form.family)
        .SetU32(prefix + "block_count", config.layers)
        .SetU32(prefix + "embedding_length", config.hidden)
        .SetU32(prefix + "feed_forward_length", config.intermediate)
        .SetU32(prefix + "attention.head_count", config.heads)
        .SetU32(prefix + "attention.head_count_kv", config.kv_heads)
        .SetU32(prefix + "attention.key_length", config.head_dim)
        .SetU32(prefix + "attention.value_length", config.head_dim)
        .SetF32(prefix + "attention.layer_norm_rms_epsilon", config.rms_epsilon)
        .SetF32(prefix + "rope.freq_base", static_cast<float>(config.rope.theta))
        .SetU32(prefix + "rope.dimension_count", config.rope.dims)
        .SetU32("tokenizer.ggml.eos_token_id", 2);
    int positions = config.context;
    using Type = RopeConfig::Type;
    const RopeConfig& rope = config.rope;
    if (rope.type == Type::kLinear || rope.type == Type::kYarn) {
      bytes.SetText(prefix + "rope.scaling.type", rope.type == Type::kYarn ? "yarn" : "linear")
          .SetF32(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
      if (rope.type == Type::kLinear) positions = static_cast<int>(positions / rope.factor);
    }
    if (rope.original_context > 0) {
      bytes.SetU32(prefix + "rope.scaling.original_context_length", rope.original_context);
    }
    const auto floats = [](const std::vector<float>& values) {
      return std::string(reinterpret_cast<const char*>(values.data()),
                         values.size() * sizeof(float));
    };
    const auto add_factors = [&](const char* name, const std::vector<float>& factors) {
      bytes.AddTensor(name, {factors.size()}, 0, floats(factors));
    };
    if (rope.type == Type::kLongRope) {
      bytes.SetF32(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.attention_factor));
      add_factors("rope_factors_short.weight", rope.short_factor);
      add_factors("rope_factors_long.weight", rope.long_factor);
    }
    if (rope.type == Type::kLlama3) {
      RopeConfig plain = rope;
      plain.type = Type::kDefault;
      std::vector<float> factors = RopeInverseFrequency(plain, 1);
      const std::vector<float> scaled = RopeInverseFrequency(rope, 1);
      for (size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
      add_factors("rope_freqs.weight", factors);
    }
    if (!config.windows.empty()) {
      bytes.SetU32(prefix + "attention.sliding_window", config.windows[0]);
    }
    bytes.SetU32(prefix + "context_length", positions);
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (absl::EndsWith(name, "inv_freq") ||
          (config.tied_embeddings && name == "lm_head.weight")) {
        continue;
      }
      const auto span = tensor.Bytes();
      std::string data(reinterpret_cast<const char*>(span.data()), span.size());
      std::vector<uint64_t> sizes(tensor.shape.rbegin(), tensor.shape.rend());
      uint32_t type = tensor.format == WeightFormat::kF32   ? 0
                      : tensor.format == WeightFormat::kF16 ? 1
                                                            : 30;
      const DType element = *tensor.element_type();
      if (matrices && tensor.shape.size() == 2) {
        std::vector<float> values(data.size() / DTypeBytes(element));
        ConvertElements(element, data.data(), DType::kF32, values.data(), values.size());
        data = *matrices == WeightFormat::kF32
                   ? floats(values)
                   : Quantised(values, *matrices == WeightFormat::kQ4_0);
        type = *matrices == WeightFormat::kF32 ? 0 : *matrices == WeightFormat::kQ4_0 ? 2 : 8;
      }
      const bool rotated =
          absl::StrContains(name, ".q_proj.") || absl::StrContains(name, ".k_proj.");
      if (rotated && std::string(form.family) == "llama") {
        data = Interleaved(data, config.head_dim, tensor.shape[0]);
      }
      bytes.AddTensor(GgufName(name), sizes, type, data);
    }
    return folder_.Write(absl::StrCat(form.folder, ".gguf"), bytes.Build());
  }

  // Returns the logits of every position of a prompt, or the first error.
  static absl::StatusOr<std::vector<float>> Logits(const std::string& path, Backend* backend) {
    auto model = Model::Load(path, backend);
    if (!model.ok()) return model.status();
    const ModelConfig& config = (*model)->config();
    std::vector<TokenId> tokens;
    std::vector<int> rows;
    for (int i = 0; i < 40; ++i) {
      tokens.push_back(7 * i % config.vocab);
      rows.push_back(i);
    }
    auto pass = ForwardPass::Create(model->get(), backend, static_cast<int>(tokens.size()));
    if (!pass.ok()) return pass.status();
    const KvLayout layout = (*model)->LayoutFor(64, DType::kF32);
    std::vector<std::byte> pool(layout.BlockBytes());
    const BlockId blocks[] = {0};
    const SequenceRows sequence{.rows = static_cast<int>(tokens.size()), .blocks = blocks};
    std::vector<float> logits(tokens.size() * config.vocab);
    const absl::Status run =
        (*pass)->Run({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = rows},
                     {.data = pool.data(), .layout = layout}, absl::MakeSpan(logits));
    if (!run.ok()) return run;
    return logits;
  }
  static std::unique_ptr<Backend> Cpu(CpuNumerics numerics = CpuNumerics::kF32) {
    return CreateCpuBackend({2, CpuBackendOptions::Isa::kPortable, numerics}).value();
  }

  ScratchFolder folder_;
};

TEST_F(GgufModelTest, TheSameWeightsGiveTheSameBits) {
  for (const Form& form :
       {Form{"llama", "gqa_f32"}, Form{"llama", "gqa_bias_bf16"}, Form{"llama", "mha_tied_f16"},
        Form{"llama", "llama_linear_mixed"}, Form{"qwen2", "qwen2_yarn_tied_bf16"},
        Form{"qwen3", "qwen3_f32"}, Form{"phi3", "phi3_long_bf16"}, Form{"phi3", "phi3_window_f32"},
        Form{"llama", "mqa_llama3_f32"}}) {
    SCOPED_TRACE(form.folder);
    const auto backend = Cpu();
    const auto expected = Logits(TestData(form.folder), backend.get());
    const auto logits = Logits(Write(form), backend.get());
    ASSERT_TRUE(expected.ok() && logits.ok()) << logits.status();
    ASSERT_EQ(expected->size(), logits->size());
    // llama.cpp keeps divisors of Llama 3's frequencies, which round otherwise than transformers.
    const bool exact = std::string(form.folder) != "mqa_llama3_f32";
    for (size_t i = 0; i < logits->size(); ++i) {
      if (exact) {
        ASSERT_EQ((*logits)[i], (*expected)[i]) << i;
      } else {
        ASSERT_NEAR((*logits)[i], (*expected)[i], 1e-4 * (1 + std::fabs((*expected)[i]))) << i;
      }
    }
  }
}

TEST_F(GgufModelTest, QuantisedWeightsAreTheirExactValues) {
  const Form form = {"llama", "gqa_bias_bf16"};
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0}) {
    SCOPED_TRACE(WeightFormatName(format));
    const std::string path = Write(form, format);
    // ReferenceBackend multiplies with the values that Dequantise gives, in double precision.
    ReferenceBackend reference;
    const auto expected = Logits(path, &reference);
    const auto f32 = Logits(path, Cpu().get());
    const auto q8 = Logits(path, Cpu(CpuNumerics::kQ8).get());
    const auto other = Logits(Write(form, WeightFormat::kF32), Cpu().get());
    ASSERT_TRUE(expected.ok() && f32.ok() && q8.ok() && other.ok())
        << expected.status() << f32.status() << q8.status();
    double largest = 0, of_rounding = 0, of_weights = 0;
    for (size_t i = 0; i < expected->size(); ++i) {
      ASSERT_NEAR((*f32)[i], (*expected)[i], 1e-4 * (1 + std::fabs((*expected)[i]))) << i;
      largest = std::max(largest, double{std::fabs((*expected)[i])});
      of_rounding = std::max(of_rounding, double{std::fabs((*q8)[i] - (*expected)[i])});
      of_weights = std::max(of_weights, double{std::fabs((*other)[i] - (*expected)[i])});
    }
    // Rounding activations to 8 bits costs little.
    EXPECT_GT(of_rounding, 0);
    EXPECT_LT(of_rounding, 0.05 * largest);
    EXPECT_GT(of_weights, 0);
  }
}

// The answers with these files are compared in forward_pass_test.cc.
TEST_F(GgufModelTest, FilesOfLlamaQuantizeHaveTheFormatsOfTheirNames) {
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(TestData(""))) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    const auto folder = ModelFolder::Open(entry.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_THAT(folder->config.warnings, IsEmpty());
    std::set<std::string> formats;
    for (const auto& [name, tensor] : folder->checkpoint->tensors()) {
      if (tensor.shape.size() == 2) formats.insert(tensor.type);
    }
    std::string format = entry.path().stem().extension().string().substr(1);
    if (format == "Q4_K_M") {
      EXPECT_THAT(formats, ElementsAre("Q4_K", "Q6_K"));
    } else {
      EXPECT_THAT(formats, ElementsAre(format));
    }
    seen.insert(std::move(format));
  }
  EXPECT_EQ(seen.size(), kWeightFormats + 1);
}

// As on a device: q and k are put in order while they are loaded.
class ReferenceWithCopies : public ReferenceBackend {
 public:
  bool copies_weights() const override { return true; }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    const auto* const from = static_cast<const std::byte*>(host.data);
    copies_.push_back({from, from + host.rows * RowBytes(host.format, host.cols)});
    return Matrix{copies_.back().data(), host.format, host.rows, host.cols};
  }

 private:
  std::vector<std::vector<std::byte>> copies_;
};

TEST_F(GgufModelTest, BackendsThatCopyWeightsGiveTheSameBits) {
  for (const auto& format : {std::optional<WeightFormat>(), std::optional(WeightFormat::kQ8_0)}) {
    const std::string path = Write({"llama", "gqa_bias_bf16"}, format);
    ReferenceBackend in_place;
    ReferenceWithCopies copying;
    const auto expected = Logits(path, &in_place);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Logits(path, &copying).value(), *expected);
  }
}

TEST_F(GgufModelTest, FilesThatDoNotFitTheirSettingsAreRefused) {
  const auto refused = [&](const GgufBytes& bytes, const std::string& why) {
    const auto opened = ModelFolder::Open(folder_.Write("bad.gguf", bytes.Build()));
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(why));
  };
  const auto settings = [] {
    GgufBytes bytes;
    bytes.SetText("general.architecture", "llama")
        .SetU32("llama.block_count", 1)
        .SetU32("llama.embedding_length", 8)
        .SetU32("llama.feed_forward_length", 16)
        .SetU32("llama.attention.head_count", 2)
        .SetU32("llama.context_length", 64)
        .SetU32("llama.vocab_size", 4)
        .SetF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    return bytes;
  };
  const auto embedding = [&](uint32_t type) {
    GgufBytes bytes = settings();
    bytes.AddTensor("token_embd.weight", {8, 4}, type, std::string(8 * 4 * 4, '\0'));
    return bytes;
  };
  refused(GgufBytes(), "has no setting general.architecture");
  refused(embedding(0), "has no tensor \"model.layers.0.input_layernorm.weight\"");
  refused(embedding(26),
          "tensor \"model.embed_tokens.weight\" has type I32; expected F32, F16, BF16, Q4_0");
  refused(embedding(0).AddTensor("blk.0.ffn_gate_inp.weight", {8}, 0, std::string(32, '\0')),
          "has tensor \"blk.0.ffn_gate_inp.weight\", which no LlamaForCausalLM of 1 layer has");
  refused(settings().SetU32("llama.expert_count", 8), "llama.expert_count is 8; expected 0");
  refused(settings().SetU32("llama.attention.head_count_kv", 3), "a divisor of");
  refused(settings().SetText("llama.rope.scaling.type", "su"),
          "expected none, linear, yarn, or longrope");
  refused(settings().SetU32("llama.attention.value_length", 6), "that of keys, 4");
  refused(settings().Set("split.count", GgufBytes::kU16, GgufBytes::Raw(uint16_t{3})),
          "is one of 3 parts, and not the first by its name");
}

TEST_F(GgufModelTest, ASplitFileIsReadAsAWhole) {
  // The divisors of frequencies, and whether the embeddings are tied, are known from any part.
  const std::string whole = Write({"llama", "mqa_llama3_f32"});
  const auto file = GgufFile::Open(whole).value();
  GgufBytes first, second;
  for (GgufBytes* part : {&first, &second}) {
    part->Set("split.count", GgufBytes::kU16, GgufBytes::Raw(uint16_t{2}));
  }
  for (const auto& [key, value] : file->settings()) {
    if (const auto* const text = std::get_if<std::string>(&value)) first.SetText(key, *text);
    if (const auto* const number = std::get_if<int64_t>(&value)) {
      first.SetU32(key, static_cast<uint32_t>(*number));
    }
    if (const auto* const number = std::get_if<double>(&value)) {
      first.SetF32(key, static_cast<float>(*number));
    }
  }
  for (const auto& [name, tensor] : file->tensors()) {
    const auto bytes = tensor.Bytes();
    (absl::StrContains(name, "ffn") || name == "rope_freqs.weight" || name == "output.weight"
         ? second
         : first)
        .AddTensor(name, {tensor.shape.rbegin(), tensor.shape.rend()}, 0,
                   {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  const std::string path = folder_.Write("m-00001-of-00002.gguf", first.Build());
  const auto backend = Cpu();
  EXPECT_EQ(ModelNameAt(path), "m");
  EXPECT_EQ(ModelNameAt(whole), std::filesystem::path(whole).stem());
  const absl::Status missing = Logits(path, backend.get()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("it is part 2 of 2 of the model"));
  folder_.Write("m-00002-of-00002.gguf", second.Build());
  const auto logits = Logits(path, backend.get());
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(*logits, Logits(whole, backend.get()).value());
}

}  // namespace
}  // namespace baton
