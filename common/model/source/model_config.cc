#include "common/model/source/model_config.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/source/config_keys.h"
#include "common/model/source/folder_advice.h"
#include "common/model/source/generation_config.h"
#include "common/model/source/json_reader.h"
#include "common/model/source/model_family.h"
#include "common/model/source/model_limits.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;

// Refuses quantised weights. The message names the quantisation method as the model's web page
// does.
void RefuseQuantised(JsonReader& json) {
  constexpr char kInstead[] =
      "no quantised weights, which Baton does not read; serve the model's BF16 or F16 folder, from "
      "which these were made";
  // MLX writes the former key; the latter is an older name of quantization_config.
  for (const char* key : {"quantization", "compression_config"}) {
    if (json.Has(key)) json.Fail(key, kInstead);
  }
  if (!json.Has("quantization_config")) return;
  JsonReader config = json.Object("quantization_config");
  std::string method = config.String("quant_method", "");
  if (method.empty()) {
    json.Fail("quantization_config", kInstead);
    return;
  }
  config.Fail("quant_method", kInstead);
}

const ModelFamily* ReadFamily(JsonReader& json) {
  const auto names = json.Strings("architectures");
  if (names.size() == 1) {
    for (const ModelFamily& family : ModelFamilies()) {
      if (family.architecture == names.front()) return &family;
    }
  }
  json.Fail("architectures",
            absl::StrCat("one of ", absl::StrJoin(ModelFamilies(), ", ",
                                                  [](std::string* out, const ModelFamily& family) {
                                                    absl::StrAppend(out, family.architecture);
                                                  })));
  return nullptr;
}

void ReadHeads(JsonReader& json, const ModelFamily& family, ModelConfig& config) {
  config.heads = json.Int("num_attention_heads", 1, kMaxHeads);
  const int kv_heads =
      json.HasNull("num_key_value_heads") || family.kv_heads == 0 ? config.heads : family.kv_heads;
  config.kv_heads = json.Int("num_key_value_heads", 1, kMaxHeads, kv_heads);
  if (config.heads % config.kv_heads != 0) {
    json.Fail("num_key_value_heads",
              absl::StrCat("a divisor of num_attention_heads, ", config.heads));
  }
  if (json.Has("head_dim") || (family.head_dim > 0 && !json.HasNull("head_dim"))) {
    const auto fallback = family.head_dim > 0 ? std::optional<int>(family.head_dim) : std::nullopt;
    config.head_dim = json.Int("head_dim", 2, kMaxHeadDim, fallback);
    if (config.head_dim % 2 != 0) json.Fail("head_dim", "an even number, for the rotary pairs");
  } else {
    config.head_dim = config.hidden / config.heads;
    if (config.hidden % (2 * config.heads) != 0 || config.head_dim > kMaxHeadDim) {
      json.Fail("hidden_size",
                absl::StrCat("without head_dim, an even multiple up to ", kMaxHeadDim,
                             " of num_attention_heads, ", config.heads));
    }
  }
}

// Returns the attention window of each layer: `sliding_window` tokens, or 0 if the layer sees all
// tokens. The layers with a window come from `layer_types` or from the family's rule.
std::vector<int> ReadWindows(JsonReader& json, const ModelFamily& family, int layers, int context) {
  using Windows = ModelFamily::Windows;
  const bool asked =
      family.windows == Windows::kEveryLayer ||
      (family.windows == Windows::kLastLayers && json.Bool("use_sliding_window", false));
  const int window = !asked || json.HasNull("sliding_window")
                         ? 0
                         : json.Int("sliding_window", 1, kMaxContext, family.window);
  // transformers computes each token of a prompt with all tokens before it, but its cache then
  // forgets those before the window.
  if (family.windows == Windows::kNone && json.Has("sliding_window") && !json.Has("layer_types") &&
      json.Int("sliding_window", 1, kMaxContext) < context) {
    json.Fail("sliding_window", absl::StrCat("none, or at least the context, ", context,
                                             ": models of this family have no window"));
  }
  const int first = family.windows == Windows::kLastLayers
                        ? json.Int("max_window_layers", 0, std::numeric_limits<int>::max(), 28)
                        : 0;
  std::vector<int> windows(layers, 0);
  for (int layer = first; layer < layers; ++layer) windows[layer] = window;
  if (json.Has("layer_types")) {
    const auto types = json.Strings("layer_types");
    bool good = types.size() == static_cast<size_t>(layers);
    for (int layer = 0; good && layer < layers; ++layer) {
      const bool slides = types[layer] == "sliding_attention";
      good = slides ? window > 0 : types[layer] == "full_attention";
      // Only for kLastLayers does transformers read `layer_types`. In all other families it ignores
      // the list, so the list must agree with the windows that the family's rule gives.
      if (family.windows != Windows::kLastLayers) good = good && slides == (windows[layer] > 0);
      windows[layer] = slides ? window : 0;
    }
    if (!good) {
      json.Fail("layer_types",
                absl::StrCat("for each of ", layers, " layers ",
                             window == 0 ? "\"full_attention\", because there is no sliding window"
                             : family.windows == Windows::kLastLayers
                                 ? "\"full_attention\" or \"sliding_attention\""
                                 : "\"sliding_attention\""));
    }
  }
  if (std::all_of(windows.begin(), windows.end(), [](int w) { return w == 0; })) windows.clear();
  return windows;
}

void ReadContext(JsonReader& json, const ModelFamily& family, ModelConfig& config) {
  const int positions = json.Int("max_position_embeddings", 1, kMaxContext);
  config.rope = ReadRopeConfig(json, {.head_dim = config.head_dim,
                                      .max_position_embeddings = positions,
                                      .partial = family.partial_rope,
                                      .yarn_is_long = family.partial_rope,
                                      .original_context = family.original_context});
  const double context = ScaledContext(config.rope, positions);
  if (context > kMaxContext) {
    json.Fail("max_position_embeddings",
              absl::StrCat("with rope factor ", config.rope.factor, " a context of at most ",
                           kMaxContext, " tokens"));
  }
  config.context = static_cast<int>(std::min<double>(context, kMaxContext));
}

// Names the keys of rope_scaling and rope_parameters that nothing reads.
void WarnOfRopeKeys(JsonReader& json, RopeConfig::Type type, std::vector<std::string>* warnings) {
  static const std::set<std::string> kAlways = {"finetuned",
                                                "original_max_position_embeddings",
                                                "partial_rotary_factor",
                                                "rope_theta",
                                                "rope_type",
                                                "type"};
  static const std::set<std::string> kOfSomeTypes = {
      "attention_factor", "beta_fast",    "beta_slow",       "factor", "high_freq_factor",
      "long_factor",      "long_mscale",  "low_freq_factor", "mscale", "mscale_all_dim",
      "short_factor",     "short_mscale", "truncate"};
  if (!json.status().ok()) return;
  std::vector<std::string> unknown;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (!json.Has(name)) continue;
    for (const std::string& key : json.Object(name).Keys()) {
      const bool read = type != RopeConfig::Type::kDefault && kOfSomeTypes.contains(key);
      if (!read && !kAlways.contains(key)) unknown.push_back(absl::StrCat(name, ".", key));
    }
  }
  if (unknown.empty()) return;
  warnings->push_back(absl::StrCat(json.path(), ": no model of this rope_type reads ",
                                   absl::StrJoin(unknown, ", ")));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  auto json = JsonReader::Open(path, kMaxFileBytes);
  // JsonReader::Open returns FailedPrecondition if `folder` is a file.
  if (absl::IsNotFound(json.status()) || absl::IsFailedPrecondition(json.status())) {
    return MissingModelFile(folder, "config.json");
  }
  RETURN_IF_ERROR(json.status());

  const ModelFamily* family = ReadFamily(*json);
  // The architecture decides what the other keys mean. If the architecture is wrong, errors about
  // other keys would mislead. So its error is returned first.
  RETURN_IF_ERROR(json->status());
  // transformers builds the model of this type, whatever `architectures` says.
  if (json->String("model_type", std::string(family->model_type)) != family->model_type) {
    json->Fail("model_type",
               absl::StrCat("\"", family->model_type, "\", the type of ", family->architecture));
  }
  ModelConfig config;
  config.architecture = std::string(family->architecture);
  RefuseQuantised(*json);
  if (json->String("hidden_act", "silu") != "silu") json->Fail("hidden_act", "\"silu\"");
  config.layers = json->Int("num_hidden_layers", 1, kMaxLayers);
  config.hidden = json->Int("hidden_size", 1, kMaxHidden);
  config.intermediate = json->Int("intermediate_size", 1, kMaxIntermediate);
  config.vocab = json->Int("vocab_size", 1, kMaxVocab);
  ReadHeads(*json, *family, config);
  // Later code divides by these sizes, so stop here if they are bad.
  RETURN_IF_ERROR(json->status());
  config.rms_epsilon = json->Number("rms_norm_eps", 0, 1, family->rms_epsilon);
  ReadContext(*json, *family, config);
  config.windows = ReadWindows(*json, *family, config.layers, config.context);
  config.tied_embeddings = json->Bool("tie_word_embeddings", false);
  if (family->attention_bias) config.attention_bias = json->Bool("attention_bias", false);
  if (family->mlp_bias) config.mlp_bias = json->Bool("mlp_bias", false);
  config.generation.end_tokens = EndTokens(*json, config.vocab);
  std::vector<std::string> keys = json->Keys();
  std::erase_if(keys, [](const std::string& key) {  // ReadGenerationConfig looks at these
    return FindKey(ModelConfigKeys(), key) == nullptr &&
           FindKey(GenerationConfigKeys(), key) != nullptr;
  });
  CheckKeys(*json, keys, ModelConfigKeys(), family->model_type, "", &config.warnings);
  WarnOfRopeKeys(*json, config.rope.type, &config.warnings);
  RETURN_IF_ERROR(json->status());
  return config;
}

}  // namespace baton
