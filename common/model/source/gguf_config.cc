#include "common/model/source/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/model/source/gguf_settings.h"
#include "common/model/source/model_limits.h"

namespace baton {
namespace {

struct GgufFamily {
  absl::string_view name;          // value of general.architecture
  absl::string_view architecture;  // the name in transformers
  // Rotary pairs lie beside each other: the rows of q and k are in this order in the file.
  bool interleaved = false;
};
constexpr GgufFamily kFamilies[] = {{"llama", "LlamaForCausalLM", true},
                                    {"qwen2", "Qwen2ForCausalLM"},
                                    {"qwen3", "Qwen3ForCausalLM"},
                                    {"phi3", "Phi3ForCausalLM"}};

const GgufFamily* ReadFamily(GgufSettings& settings) {
  constexpr char kKey[] = "general.architecture";
  const std::string name = settings.Text(kKey, "");
  for (const GgufFamily& family : kFamilies) {
    if (family.name == name) return &family;
  }
  settings.Fail(kKey, absl::StrCat("one of ", absl::StrJoin(kFamilies, ", ",
                                                            [](std::string* out, const auto& one) {
                                                              absl::StrAppend(out, one.name);
                                                            })));
  return nullptr;
}

constexpr char kRopeFreqs[] = "rope_freqs.weight", kShortFactors[] = "rope_factors_short.weight",
               kLongFactors[] = "rope_factors_long.weight";

// Reads the divisors of frequencies from a tensor of `pairs` floats. Empty if there is none.
absl::StatusOr<std::vector<float>> ReadFactors(const GgufParts& parts, const std::string& name,
                                               size_t pairs) {
  const WeightTensor* const tensor = parts.FindTensor(name);
  if (tensor == nullptr) return std::vector<float>();
  const std::string& path = tensor->file->path();
  std::vector<float> factors(pairs);
  if (tensor->format != WeightFormat::kF32 || tensor->bytes != pairs * sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor \"", name, "\" is ", tensor->type, " of shape [",
                     absl::StrJoin(tensor->shape, ", "), "]; expected F32 of shape [", pairs, "]"));
  }
  RETURN_IF_ERROR(tensor->file->Read(tensor->offset, factors.data(), tensor->bytes));
  for (const float factor : factors) {
    if (factor >= kSmallestFactor && factor <= kLargestFactor) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", name, "\" has the value ",
                                                   factor, "; expected ", kSmallestFactor, " to ",
                                                   kLargestFactor));
  }
  return factors;
}

// Reads the rotary embedding. llama.cpp stretches it by a type and a factor, by divisors in a
// tensor (Llama 3), or by two tensors of divisors (Phi-3).
absl::Status ReadRope(const GgufParts& parts, GgufSettings& settings, const std::string& prefix,
                      int positions, ModelConfig& config) {
  using Type = RopeConfig::Type;
  RopeConfig& rope = config.rope;
  const std::string scaling = prefix + "rope.scaling.";
  const std::string theta = prefix + "rope.freq_base";
  rope.theta = settings.Number(theta, 1, kLargestTheta, 10000);
  const std::string dims = prefix + "rope.dimension_count";
  rope.dims = settings.Int(dims, 2, config.head_dim, config.head_dim);
  if (rope.dims % 2 != 0) settings.Fail(dims, "an even number");
  const size_t pairs = rope.dims / 2;
  ASSIGN_OR_RETURN(rope.divisors, ReadFactors(parts, kRopeFreqs, pairs));
  ASSIGN_OR_RETURN(rope.short_factor, ReadFactors(parts, kShortFactors, pairs));
  ASSIGN_OR_RETURN(rope.long_factor, ReadFactors(parts, kLongFactors, pairs));
  rope.attention_factor = settings.Number(scaling + "attn_factor", 0, kLargestFactor, 1);
  const int original = settings.Int(scaling + "original_context_length", 1, kMaxContext, positions);
  // As in llama.cpp, the factor alone means linear scaling. Older files have another key for it.
  const std::string type_key = scaling + "type";
  const std::string type = settings.Text(type_key, "linear");
  const double older = settings.Number(prefix + "rope.scale_linear", 1, kLargestFactor, 1);
  const double factor = settings.Number(scaling + "factor", 1, kLargestFactor, older);
  const std::string& path = parts.first().file().path();
  if (rope.short_factor.empty() != rope.long_factor.empty() ||
      (!rope.short_factor.empty() && !rope.divisors.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has some of the tensors ", kRopeFreqs, ", ", kShortFactors, " and ",
                     kLongFactors, "; expected the first, the two others, or none"));
  }
  if (!rope.short_factor.empty()) {
    rope.type = Type::kLongRope;
    rope.original_context = original;
    if (type != "longrope" && type != "none" && settings.Has(type_key)) {
      settings.Fail(type_key, "longrope, because of the tensor rope_factors_long.weight");
    }
  } else if (type == "linear") {
    if (factor > 1) rope.type = Type::kLinear;
    rope.factor = factor;
  } else if (type == "yarn") {
    rope.type = Type::kYarn;
    rope.factor = factor;
    rope.original_context = original;
    rope.beta_fast = settings.Number(scaling + "yarn_beta_fast", 1e-6, kLargestFactor, 32);
    rope.beta_slow = settings.Number(scaling + "yarn_beta_slow", 1e-6, kLargestFactor, 1);
    rope.attention_factor *= settings.Number(scaling + "yarn_attn_factor", 0, kLargestFactor,
                                             0.1 * std::log(factor) + 1);
    if (rope.theta <= 1) settings.Fail(theta, "more than 1");
    if (!rope.divisors.empty()) {
      settings.Fail(type_key, "none, because of the tensor rope_freqs.weight");
    }
  } else if (type != "none") {
    settings.Fail(type_key, "none, linear, yarn, or longrope with its tensors");
  }
  return absl::OkStatus();
}

constexpr absl::string_view kEnd = "<|end|>";

// Returns true if <|end|> ends only one message of an answer that has several: the vocabulary has
// other tokens for the end of the answer. So it is with OpenAI's Harmony and with Solar Open, in
// llama.cpp too. Its other rule of this kind, for </s>, is about tokens of Gemma 4 and PLaMo, whose
// tokenisers (tokenizer.ggml.model) are not read here.
bool EndIsOfAMessage(const std::vector<std::string>& tokens) {
  const auto has = [&](absl::string_view text) { return absl::c_linear_search(tokens, text); };
  return (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>"));
}

// Adds the tokens that end an answer: those that the file names, and those that are known by their
// text, since many files name only one of several. As llama.cpp does, leaves out an id that the
// vocabulary does not have.
void ReadEndTokens(const GgufFile& file, GgufSettings& settings,
                   const std::vector<std::string>& tokens, ModelConfig* config) {
  std::vector<TokenId>& end_tokens = config->generation.end_tokens;
  const auto add = [&](TokenId id) {
    if (!absl::c_linear_search(end_tokens, id)) end_tokens.push_back(id);
  };
  for (const char* kind : {"eos", "eot", "eom"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", kind, "_token_id");
    const auto* const id = file.Find<int64_t>(key);
    if (id != nullptr && (*id < 0 || *id >= config->vocab)) {
      config->warnings.push_back(absl::StrCat(file.file().path(), ": ", key, " is ", *id,
                                              ", and the vocabulary has ", config->vocab,
                                              " tokens: nothing ends with it"));
    } else if (settings.Has(key)) {
      add(settings.Int(key, 0, config->vocab - 1));
    }
  }
  const std::vector<int64_t> kinds = settings.Ints("tokenizer.ggml.token_type");
  for (const TokenId id : EndTokensByText(tokens, kinds)) {
    if (id < config->vocab) add(id);
  }
  if (EndIsOfAMessage(tokens)) {
    std::erase_if(end_tokens, [&](TokenId id) {
      return static_cast<size_t>(id) < tokens.size() && tokens[id] == kEnd;
    });
  }
}

// Without a name for the way in which text is cut into words, llama.cpp takes its own for any model
// (TokenizerJsonOfGguf), and warns.
void WarnOfNoPreTokenizer(const GgufFile& file, std::vector<std::string>* warnings) {
  const auto* const model = file.Find<std::string>("tokenizer.ggml.model");
  const auto* const pre = file.Find<std::string>("tokenizer.ggml.pre");
  if (model == nullptr || *model != "gpt2" || (pre != nullptr && !pre->empty())) return;
  warnings->push_back(absl::StrCat(
      file.file().path(),
      ": has no setting tokenizer.ggml.pre, so it is read as \"default\": text may be cut into "
      "words in another way than in the training of the model; convert the model again"));
}

// Appends a warning that names the settings that nothing has read, if there are any.
void WarnOfUnread(const GgufSettings& settings, const std::string& prefix, const std::string& path,
                  std::vector<std::string>* warnings) {
  constexpr size_t kMaxNames = 10;
  std::vector<std::string> unread = settings.Unread(prefix);
  if (unread.empty()) return;
  const size_t count = unread.size();
  unread.resize(std::min(count, kMaxNames));
  for (std::string& key : unread) key = absl::CHexEscape(key.substr(0, 100));
  warnings->push_back(
      absl::StrCat(path, ": nothing reads the settings ", absl::StrJoin(unread, ", "),
                   count > kMaxNames ? absl::StrCat(" and ", count - kMaxNames, " more") : ""));
}

}  // namespace

std::vector<TokenId> EndTokensByText(const std::vector<std::string>& tokens,
                                     const std::vector<int64_t>& kinds) {
  constexpr int64_t kNormal = 1;  // llama.h: LLAMA_TOKEN_TYPE_NORMAL
  static constexpr absl::string_view kTexts[] = {
      "<|eot_id|>",
      "<|im_end|>",
      kEnd,
      "<|return|>",
      "<|call|>",
      "<|flush|>",
      "<|calls|>",
      "<end_of_turn>",
      "<|endoftext|>",
      "</s>",
      "<|eom_id|>",
      "<EOT>",
      "_<EOT>",
      "[EOT]",
      "[EOS]",
      "<|end_of_text|>",
      "<end_of_utterance>",
      "<eos>",
      "<|end_of_turn|>",
      "<\xef\xbd\x9c"
      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
  };
  const bool of_a_message = EndIsOfAMessage(tokens);
  std::set<absl::string_view> seen;
  std::vector<TokenId> ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const absl::string_view text = tokens[id];
    if (!absl::c_linear_search(kTexts, text) || (of_a_message && text == kEnd)) continue;
    if (text == "</s>" && (id >= kinds.size() || kinds[id] == kNormal)) continue;
    if (seen.insert(text).second) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufParts& parts) {
  const GgufFile& file = parts.first();
  GgufSettings settings(&file);
  const GgufFamily* const family = ReadFamily(settings);
  RETURN_IF_ERROR(settings.status());  // Everything else depends on the family.
  // Adapters and encoders of images have the architecture of their model.
  if (settings.Text("general.type", "model") != "model") settings.Fail("general.type", "model");
  RETURN_IF_ERROR(settings.status());
  const std::string prefix = absl::StrCat(family->name, ".");
  const auto has_tensor = [&](const std::string& name) {
    return parts.FindTensor(name) != nullptr;
  };
  ModelConfig config;
  config.architecture = std::string(family->architecture);
  config.layers = settings.Int(prefix + "block_count", 1, kMaxLayers);
  config.hidden = settings.Int(prefix + "embedding_length", 1, kMaxHidden);
  config.intermediate = settings.Int(prefix + "feed_forward_length", 1, kMaxIntermediate);
  const std::string heads = prefix + "attention.head_count";
  const std::string kv_heads = prefix + "attention.head_count_kv";
  config.heads = settings.Int(heads, 1, kMaxHeads);
  config.kv_heads = settings.Int(kv_heads, 1, kMaxHeads, config.heads);
  RETURN_IF_ERROR(settings.status());  // They divide what follows.
  if (config.heads % config.kv_heads != 0) {
    settings.Fail(kv_heads, absl::StrCat("a divisor of ", heads, ", ", config.heads));
  }
  const std::string head_dim = prefix + "attention.key_length";
  config.head_dim = settings.Int(head_dim, 2, kMaxHeadDim, config.hidden / config.heads);
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    settings.Fail(settings.Has(head_dim) ? head_dim : heads,
                  absl::StrCat("an even size of a head, up to ", kMaxHeadDim));
  }
  const std::string value_dim = prefix + "attention.value_length";
  if (settings.Int(value_dim, 1, kMaxHeadDim, config.head_dim) != config.head_dim) {
    settings.Fail(value_dim, absl::StrCat("that of keys, ", config.head_dim));
  }
  const std::vector<std::string> tokens = settings.Texts("tokenizer.ggml.tokens");
  const int token_count = static_cast<int>(std::min<size_t>(tokens.size(), kMaxVocab));
  const WeightTensor* const embedding = parts.FindTensor("token_embd.weight");
  // As in llama.cpp, the embedding decides: the setting is missing in some files.
  config.vocab =
      embedding != nullptr && embedding->shape.size() == 2 && embedding->shape[0] <= kMaxVocab
          ? static_cast<int>(embedding->shape[0])
          : settings.Int(prefix + "vocab_size", 1, kMaxVocab, token_count);
  settings.Know(prefix + "vocab_size");
  if (config.vocab < 1) settings.Fail(prefix + "vocab_size", "at least 1");
  config.rms_epsilon =
      static_cast<float>(settings.Number(prefix + "attention.layer_norm_rms_epsilon", 0, 1));
  for (const char* experts : {"expert_count", "expert_used_count"}) {
    if (settings.Int(prefix + experts, 0, 1 << 20, 0) != 0) {
      settings.Fail(prefix + experts, "0: models with experts are not read");
    }
  }
  RETURN_IF_ERROR(settings.status());
  const std::string context = prefix + "context_length";
  const int positions = settings.Int(context, 1, kMaxContext);
  RETURN_IF_ERROR(ReadRope(parts, settings, prefix, positions, config));
  config.rope.interleaved = family->interleaved;
  const double scaled = ScaledContext(config.rope, positions);
  if (scaled > kMaxContext) settings.Fail(context, absl::StrCat("up to ", kMaxContext, " in all"));
  config.context = static_cast<int>(std::min<double>(scaled, kMaxContext));
  const int window = settings.Int(prefix + "attention.sliding_window", 0, kMaxContext, 0);
  if (window > 1) config.windows.assign(config.layers, window);
  config.tied_embeddings = !has_tensor("output.weight");
  config.attention_bias = has_tensor("blk.0.attn_q.bias") && family->name != "qwen2";
  config.mlp_bias = has_tensor("blk.0.ffn_gate.bias");
  ReadEndTokens(file, settings, tokens, &config);
  WarnOfNoPreTokenizer(file, &config.warnings);
  WarnOfUnread(settings, prefix, file.file().path(), &config.warnings);
  RETURN_IF_ERROR(settings.status());
  return config;
}

bool IsRopeFactors(absl::string_view name) {
  return name == kRopeFreqs || name == kShortFactors || name == kLongFactors;
}

absl::Status ReadGgufDefaults(const GgufFile& file, ModelConfig* config) {
  constexpr int kMaxTopK = 1 << 24;
  const std::string prefix = "general.sampling.";
  GgufSettings settings(&file);
  GenerationDefaults& defaults = config->generation;
  if (settings.Has(prefix + "temp")) {
    defaults.temperature = static_cast<float>(settings.Number(prefix + "temp", 0, 100));
    defaults.given_temperature = defaults.temperature;
  }
  defaults.top_k = settings.Int(prefix + "top_k", 0, kMaxTopK, 0);
  defaults.top_p = static_cast<float>(settings.Number(prefix + "top_p", 1e-6, 1, 1));
  defaults.min_p = static_cast<float>(settings.Number(prefix + "min_p", 0, 1, 0));
  defaults.repetition_penalty =
      static_cast<float>(settings.Number(prefix + "penalty_repeat", 0.01, 100, 1));
  WarnOfUnread(settings, prefix, file.file().path(), &config->warnings);
  return settings.status();
}

std::string NameOfGgufTensor(const ModelConfig& config, absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kWhole[] = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
  };
  static constexpr std::pair<absl::string_view, absl::string_view> kOfLayers[] = {
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
  };
  for (const auto& [here, there] : kWhole) {
    if (name == here) return std::string(there);
  }
  if (!absl::ConsumePrefix(&name, "blk.")) return "";
  const size_t dot = name.find('.'), last = name.rfind('.');
  int layer = 0;
  if (dot == name.npos || last <= dot || !absl::SimpleAtoi(name.substr(0, dot), &layer)) return "";
  if (layer < 0 || layer >= config.layers) return "";
  const absl::string_view part = name.substr(dot + 1, last - dot - 1), kind = name.substr(last);
  for (const auto& [here, there] : kOfLayers) {
    if (part != here) continue;
    // The tensor of Phi-3 has both projections.
    const bool fused = part == "ffn_up" && config.architecture == "Phi3ForCausalLM";
    return absl::StrCat("model.layers.", layer, ".", fused ? "mlp.gate_up_proj" : there, kind);
  }
  return "";
}

}  // namespace baton
