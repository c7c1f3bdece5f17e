#include "common/model/model_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/json_reader.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;

// Far above any model there is, and low enough that products of two sizes fit 64 bits and offsets
// into activations fit an int.
constexpr int kMaxLayers = 4096;
constexpr int kMaxHidden = 1 << 17;
constexpr int kMaxIntermediate = 1 << 20;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxContext = 1 << 28;

constexpr absl::string_view kArchitectures[] = {"LlamaForCausalLM"};

Llama3RopeScaling ReadLlama3Scaling(JsonReader rope) {
  Llama3RopeScaling scaling;
  scaling.factor = rope.Number("factor", 1, 1e6);
  scaling.low_freq_factor = rope.Number("low_freq_factor", 1e-6, 1e6);
  scaling.high_freq_factor = rope.Number("high_freq_factor", 1e-6, 1e6);
  scaling.original_context = rope.Int("original_max_position_embeddings", 1, kMaxContext);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.Fail("high_freq_factor",
              absl::StrCat("more than low_freq_factor, ", scaling.low_freq_factor));
  }
  return scaling;
}

// `rope_theta` and `rope_scaling` as transformers 4 writes them, or `rope_parameters` as
// transformers 5 does.
void ReadRope(JsonReader& json, ModelConfig& config) {
  constexpr double kLargestTheta = 1e12;
  constexpr double kDefaultTheta = 10000;
  const bool parameters = json.Has("rope_parameters");
  config.rope_theta = json.Number("rope_theta", 1, kLargestTheta, kDefaultTheta);
  if (json.Number("partial_rotary_factor", 0, 1, 1) != 1) {
    json.Fail("partial_rotary_factor", "1 or nothing");
  }
  if (!parameters && !json.Has("rope_scaling")) return;

  JsonReader rope = json.Object(parameters ? "rope_parameters" : "rope_scaling");
  if (parameters) {
    config.rope_theta = rope.Number("rope_theta", 1, kLargestTheta, config.rope_theta);
    if (rope.Number("partial_rotary_factor", 0, 1, 1) != 1) {
      rope.Fail("partial_rotary_factor", "1 or nothing");
    }
  }
  const char* key = !rope.Has("rope_type") && rope.Has("type") ? "type" : "rope_type";
  // rope_scaling without a type means nothing in particular; rope_parameters without one, default.
  const std::string type =
      rope.String(key, parameters ? std::optional<std::string>("default") : std::nullopt);
  if (type == "llama3") {
    config.rope_scaling = ReadLlama3Scaling(rope);
  } else if (type != "default") {
    rope.Fail(key, "\"llama3\" or \"default\"");
  }
}

std::vector<TokenId> EndTokens(JsonReader& json, int vocab) {
  std::vector<TokenId> tokens;
  for (const TokenId token : json.Ints("eos_token_id", 0, vocab - 1)) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
  return tokens;
}

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& path, int vocab) {
  GenerationDefaults defaults;
  auto json = JsonReader::Open(path, kMaxFileBytes);
  if (absl::IsNotFound(json.status())) return defaults;
  if (!json.ok()) return json.status();
  const bool do_sample = json->Bool("do_sample", false);
  const double temperature = json->Number("temperature", 0, 1e4, 1);
  defaults.temperature = do_sample ? temperature : 0;
  defaults.top_p = json->Number("top_p", 0, 1, 1);
  defaults.top_k = json->Int("top_k", 0, kMaxVocab, 0);
  defaults.min_p = json->Number("min_p", 0, 1, 0);
  defaults.end_tokens = EndTokens(*json, vocab);
  if (defaults.top_p == 0) json->Fail("top_p", "more than 0");
  if (!json->status().ok()) return json->status();
  return defaults;
}

std::string ReadArchitecture(JsonReader& json) {
  const auto names = json.Strings("architectures");
  if (names.size() != 1 || std::find(std::begin(kArchitectures), std::end(kArchitectures),
                                     names.front()) == std::end(kArchitectures)) {
    json.Fail("architectures", absl::StrCat("one of ", absl::StrJoin(kArchitectures, ", ")));
    return "";
  }
  return names.front();
}

void ReadSizes(JsonReader& json, ModelConfig& config) {
  config.layers = json.Int("num_hidden_layers", 1, kMaxLayers);
  config.hidden = json.Int("hidden_size", 1, kMaxHidden);
  config.intermediate = json.Int("intermediate_size", 1, kMaxIntermediate);
  config.heads = json.Int("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = json.Int("num_key_value_heads", 1, kMaxHeads, config.heads);
  if (config.heads % config.kv_heads != 0) {
    json.Fail("num_key_value_heads",
              absl::StrCat("a divisor of num_attention_heads, ", config.heads));
  }
  if (json.Has("head_dim")) {
    config.head_dim = json.Int("head_dim", 2, kMaxHeadDim);
    if (config.head_dim % 2 != 0) json.Fail("head_dim", "an even number, for the rotary pairs");
  } else {
    config.head_dim = config.hidden / config.heads;
    if (config.hidden % (2 * config.heads) != 0 || config.head_dim > kMaxHeadDim) {
      json.Fail("hidden_size",
                absl::StrCat("without head_dim, an even multiple up to ", kMaxHeadDim,
                             " of num_attention_heads, ", config.heads));
    }
  }
  config.vocab = json.Int("vocab_size", 1, kMaxVocab);
  config.context = json.Int("max_position_embeddings", 1, kMaxContext);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  auto json = JsonReader::Open(absl::StrCat(folder, "/config.json"), kMaxFileBytes);
  if (!json.ok()) return json.status();

  ModelConfig config;
  config.architecture = ReadArchitecture(*json);
  // The architecture decides what the other keys mean: without it their complaints would mislead.
  if (!json->status().ok()) return json->status();
  if (json->Has("quantization_config"))
    json->Fail("quantization_config", "nothing: no quantised weights");
  if (json->String("hidden_act", "silu") != "silu") json->Fail("hidden_act", "\"silu\"");
  ReadSizes(*json, config);
  config.rms_epsilon = json->Number("rms_norm_eps", 0, 1, 1e-6);
  ReadRope(*json, config);
  config.tied_embeddings = json->Bool("tie_word_embeddings", false);
  config.attention_bias = json->Bool("attention_bias", false);
  config.mlp_bias = json->Bool("mlp_bias", false);
  const auto end_tokens = EndTokens(*json, config.vocab);
  if (!json->status().ok()) return json->status();

  auto generation =
      ReadGenerationDefaults(absl::StrCat(folder, "/generation_config.json"), config.vocab);
  if (!generation.ok()) return generation.status();
  config.generation = *std::move(generation);
  if (config.generation.end_tokens.empty()) config.generation.end_tokens = end_tokens;
  return config;
}

std::vector<float> RopeInverseFrequency(const ModelConfig& config) {
  std::vector<float> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // The power in double, then rounded: what a correctly rounded float power gives.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    frequencies[i] = 1.0f / static_cast<float>(std::pow(static_cast<double>(config.rope_theta),
                                                        static_cast<double>(exponent)));
  }
  if (!config.rope_scaling) return frequencies;

  // Operation by operation as _compute_llama3_parameters of transformers, all of it in float.
  const Llama3RopeScaling& scaling = *config.rope_scaling;
  const float original = scaling.original_context;
  const float low_wavelength =
      static_cast<float>(static_cast<double>(scaling.original_context) / scaling.low_freq_factor);
  const float high_wavelength =
      static_cast<float>(static_cast<double>(scaling.original_context) / scaling.high_freq_factor);
  const float band = static_cast<float>(static_cast<double>(scaling.high_freq_factor) -
                                        static_cast<double>(scaling.low_freq_factor));
  for (float& frequency : frequencies) {
    const float wavelength = (1.0f / frequency) * static_cast<float>(2 * M_PI);
    if (wavelength > low_wavelength) {
      frequency = frequency / scaling.factor;
    } else if (wavelength >= high_wavelength) {
      const float smooth = ((1.0f / wavelength) * original - scaling.low_freq_factor) / band;
      frequency = (1.0f - smooth) * frequency / scaling.factor + smooth * frequency;
    }
  }
  return frequencies;
}

}  // namespace baton
