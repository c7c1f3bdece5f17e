#include "common/model/source/config_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/model/source/json_reader.h"

namespace baton {
namespace {

bool ReadBy(const ConfigKey& row, absl::string_view model_type) {
  if (row.families.empty()) return true;
  const std::vector<absl::string_view> families = absl::StrSplit(row.families, ' ');
  return std::find(families.begin(), families.end(), model_type) != families.end();
}

}  // namespace

const ConfigKey* FindKey(absl::Span<const ConfigKey> rows, absl::string_view key) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const ConfigKey& row) { return row.key == key; });
  return row == rows.end() ? nullptr : &*row;
}

bool IsNeutral(const JsonReader& json, const ConfigKey& row) {
  return !json.Has(row.key) || json.Is(row.key, row.neutral);
}

absl::Span<const ConfigKey> ModelConfigKeys() {
  using enum KeyDecision;
  static constexpr ConfigKey kKeys[] = {
      {"_attn_implementation", kHarmless},
      {"_attn_implementation_autoset", kHarmless},
      {"_commit_hash", kHarmless},
      {"_experts_implementation", kHarmless},
      {"_flash_attn_2_enabled", kHarmless},
      {"_name_or_path", kHarmless},
      {"add_cross_attention", kHarmless},
      {"architectures", kObeyed},
      {"attention_bias", kObeyed, "false", "llama qwen3"},
      {"attention_chunk_size", kRefused},
      {"attention_dropout", kHarmless},
      {"attn_implementation", kHarmless},
      {"auto_map", kHarmless},
      {"bos_token_id", kHarmless},
      {"chunk_size_feed_forward", kHarmless},
      {"classifier_dropout", kHarmless},
      {"compression_config", kRefused},
      {"cross_attention_hidden_size", kHarmless},
      // Weights keep the types of their file.
      {"dtype", kHarmless},
      {"embd_pdrop", kHarmless},
      {"eos_token_id", kObeyed},
      {"experts_implementation", kHarmless},
      {"finetuning_task", kHarmless},
      {"full_attn_mod", kHarmless},
      {"head_dim", kObeyed},
      {"hidden_act", kObeyed},
      {"hidden_dropout", kHarmless},
      {"hidden_size", kObeyed},
      {"id2label", kHarmless},
      {"ignore_keys_at_rope_validation", kHarmless},
      {"initializer_range", kHarmless},
      {"intermediate_size", kObeyed},
      {"interpolate_factor", kHarmless},
      {"is_causal", kRefused, "true"},
      {"is_decoder", kHarmless},
      {"is_encoder_decoder", kRefused, "false"},
      {"is_llama_config", kHarmless},
      {"label2id", kHarmless},
      {"layer_types", kObeyed},
      {"lm_head_bias", kHarmless},
      {"max_position_embeddings", kObeyed},
      {"max_sequence_length", kHarmless},
      {"max_window_layers", kObeyed, "null", "qwen2 qwen3"},
      {"mlp_bias", kObeyed, "false", "llama"},
      {"model_type", kObeyed},
      {"name_or_path", kHarmless},
      {"num_attention_heads", kObeyed},
      {"num_hidden_layers", kObeyed},
      {"num_key_value_heads", kObeyed},
      {"num_labels", kHarmless},
      {"original_max_position_embeddings", kObeyed},
      {"output_attentions", kHarmless},
      {"output_hidden_states", kHarmless},
      {"pad_token_id", kHarmless},
      // Refused where the family does not rotate a part: transformers ignores it there, vLLM obeys
      // it.
      {"partial_rotary_factor", kObeyed, "1"},
      {"per_layer_config", kRefused, "{}"},
      {"prefix", kHarmless},
      // Earlier versions cut products into so many parts, which changes nothing but the rounding.
      {"pretraining_tp", kHarmless},
      {"problem_type", kHarmless},
      {"pruned_heads", kHarmless},
      {"quantization", kRefused},
      {"quantization_config", kRefused},
      {"remove_invalid_values", kHarmless},
      {"resid_pdrop", kHarmless},
      {"return_dict", kHarmless},
      {"rms_norm_eps", kObeyed},
      {"rope_interleaved", kHarmless},
      {"rope_parameters", kObeyed},
      {"rope_scaling", kObeyed},
      {"rope_theta", kObeyed},
      {"sep_token_id", kHarmless},
      {"sliding_window", kObeyed, "null", "mistral phi3 qwen2 qwen3"},
      {"task_specific_params", kHarmless},
      {"tf_legacy_loss", kHarmless},
      {"tie_encoder_decoder", kHarmless},
      {"tie_last_hidden_states", kHarmless},
      {"tie_word_embeddings", kObeyed},
      {"tokenizer_class", kHarmless},
      {"torch_dtype", kHarmless},
      {"torchscript", kHarmless},
      {"transformers.js_config", kHarmless},
      {"transformers_version", kHarmless},
      {"use_bfloat16", kHarmless},
      {"use_cache", kHarmless},
      {"use_mrope", kHarmless},
      {"use_sliding_window", kObeyed, "false", "qwen2 qwen3"},
      {"vocab_size", kObeyed},
  };
  return kKeys;
}

void CheckKeys(JsonReader& json, absl::Span<const std::string> keys,
               absl::Span<const ConfigKey> rows, absl::string_view model_type,
               absl::string_view instead, std::vector<std::string>* warnings) {
  std::vector<std::string> warned, unknown;
  for (const std::string& key : keys) {
    const ConfigKey* row = FindKey(rows, key);
    if (row == nullptr) {
      unknown.push_back(key);
    } else if (IsNeutral(json, *row)) {
      continue;
    } else if (!ReadBy(*row, model_type)) {
      warned.push_back(absl::StrCat(key, " has no effect in a model of type ", model_type));
    } else if (row->decision == KeyDecision::kRefused) {
      json.Fail(key, absl::StrCat(row->neutral == "null" ? "none" : row->neutral,
                                  ", nothing else is supported", instead));
    } else if (row->decision == KeyDecision::kWarned) {
      warned.push_back(absl::StrCat(key, " has no effect here"));
    }
  }
  if (!unknown.empty()) {
    warned.push_back(absl::StrCat("Baton does not know ", absl::StrJoin(unknown, ", "),
                                  " and ignores ", unknown.size() == 1 ? "it" : "them"));
  }
  if (!warned.empty()) {
    warnings->push_back(absl::StrCat(json.path(), ": ", absl::StrJoin(warned, "; ")));
  }
}

}  // namespace baton
