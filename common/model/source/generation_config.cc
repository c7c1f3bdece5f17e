#include "common/model/source/generation_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/source/json_reader.h"
#include "common/model/source/model_config.h"

namespace baton {
namespace {

constexpr size_t kMaxGenerationFileBytes = 4 << 20;
constexpr int kMaxTokens = 1 << 28;
constexpr int kMaxTopK = 1 << 24;
// The same limits hold for requests.
constexpr size_t kMaxBadWords = 256;
constexpr size_t kMaxBadWordTokens = 1024;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1000;
constexpr char kIgnore[] = "; --generation-config=ignore serves without it";

void ReadStopStrings(JsonReader& json, GenerationDefaults* defaults) {
  constexpr char kKey[] = "stop_strings";
  if (!json.Has(kKey)) return;
  defaults->stop_strings = json.StringOrStrings(kKey);
  const auto& stops = defaults->stop_strings;
  if (stops.size() > kMaxStops || std::any_of(stops.begin(), stops.end(), [](const auto& stop) {
        return stop.empty() || stop.size() > kMaxStopBytes;
      })) {
    json.Fail(kKey,
              absl::StrCat("at most ", kMaxStops, " strings of 1 to ", kMaxStopBytes, " bytes"));
  }
}

// Returns the keys of config.json that belong in generation_config.json.
std::vector<std::string> GenerationKeysOf(const JsonReader& config) {
  std::vector<std::string> keys = config.Keys();
  std::erase_if(keys, [](const std::string& key) {
    return FindKey(ModelConfigKeys(), key) != nullptr ||
           FindKey(GenerationConfigKeys(), key) == nullptr;
  });
  return keys;
}

// Names the keys of config.json that have no effect because generation_config.json exists.
absl::Status WarnOfConfigJson(const std::string& folder, std::vector<std::string>* warnings) {
  auto json = JsonReader::Open(absl::StrCat(folder, "/config.json"), kMaxGenerationFileBytes);
  RETURN_IF_ERROR(json.status());
  std::vector<std::string> keys = GenerationKeysOf(*json);
  std::erase_if(keys, [&](const std::string& key) {
    const ConfigKey& row = *FindKey(GenerationConfigKeys(), key);
    return row.decision == KeyDecision::kHarmless || IsNeutral(*json, row);
  });
  if (keys.empty()) return absl::OkStatus();
  warnings->push_back(absl::StrCat(json->path(), ": only generation_config.json is read for ",
                                   absl::StrJoin(keys, ", ")));
  return absl::OkStatus();
}

std::optional<int> OptionalInt(JsonReader& json, absl::string_view key, int lowest) {
  if (!json.Has(key)) return std::nullopt;
  return json.Int(key, lowest, kMaxTokens);
}

}  // namespace

absl::Span<const ConfigKey> GenerationConfigKeys() {
  using enum KeyDecision;
  static constexpr ConfigKey kKeys[] = {
      {"_commit_hash", kHarmless},
      {"_from_model_config", kHarmless},
      {"_original_object_hash", kHarmless},
      {"assistant_confidence_threshold", kHarmless},
      {"assistant_early_exit", kHarmless},
      {"assistant_ensemble_weight", kHarmless},
      {"assistant_lookbehind", kHarmless},
      {"bad_words_ids", kObeyed},
      {"begin_suppress_tokens", kRefused, "[]"},
      {"bos_token_id", kHarmless},
      {"cache_config", kHarmless},
      {"cache_implementation", kHarmless},
      {"compile_config", kHarmless},
      {"constraints", kRefused, "[]"},
      {"continuous_batching_config", kHarmless},
      {"decoder_start_token_id", kHarmless},
      {"disable_compile", kHarmless},
      {"diversity_penalty", kHarmless},
      {"do_sample", kObeyed, "false"},
      {"dola_layers", kRefused},
      {"early_stopping", kHarmless},
      {"encoder_no_repeat_ngram_size", kRefused, "0"},
      {"encoder_repetition_penalty", kRefused, "1"},
      {"eos_token_id", kObeyed},
      {"epsilon_cutoff", kRefused, "0"},
      {"eta_cutoff", kRefused, "0"},
      {"exponential_decay_length_penalty", kRefused},
      {"force_words_ids", kRefused, "[]"},
      {"forced_bos_token_id", kRefused},
      {"forced_decoder_ids", kRefused, "[]"},
      {"forced_eos_token_id", kRefused},
      {"generation_kwargs", kRefused, "{}"},
      {"guidance_scale", kRefused, "1"},
      {"is_assistant", kHarmless},
      {"length_penalty", kHarmless},
      {"low_memory", kHarmless},
      {"max_cache_len", kHarmless},
      {"max_length", kObeyed},
      {"max_matching_ngram_size", kHarmless},
      {"max_new_tokens", kObeyed},
      {"max_time", kRefused},
      {"min_length", kObeyed, "0"},
      {"min_new_tokens", kObeyed},
      {"min_p", kObeyed},
      {"no_repeat_ngram_size", kRefused, "0"},
      {"num_assistant_tokens", kHarmless},
      {"num_assistant_tokens_schedule", kHarmless},
      {"num_beam_groups", kWarned, "1"},
      {"num_beams", kWarned, "1"},
      {"num_return_sequences", kRefused, "1"},
      {"output_attentions", kWarned, "false"},
      {"output_hidden_states", kWarned, "false"},
      {"output_logits", kWarned, "false"},
      {"output_scores", kWarned, "false"},
      {"pad_token_id", kHarmless},
      {"penalty_alpha", kRefused, "0"},
      {"prefill_chunk_size", kHarmless},
      {"prompt_lookup_num_tokens", kHarmless},
      {"remove_invalid_values", kWarned, "false"},
      {"renormalize_logits", kHarmless},
      {"repetition_penalty", kObeyed, "1"},
      {"return_dict_in_generate", kHarmless},
      {"return_legacy_cache", kHarmless},
      {"sequence_bias", kRefused, "[]"},
      {"speculation_type", kHarmless},
      {"stop_strings", kObeyed},
      {"suppress_tokens", kRefused, "[]"},
      {"target_lookbehind", kHarmless},
      {"temperature", kObeyed, "1"},
      {"token_healing", kRefused, "false"},
      {"top_h", kRefused},
      {"top_k", kObeyed},
      {"top_p", kObeyed, "1"},
      {"transformers_version", kHarmless},
      {"typical_p", kRefused, "1"},
      {"use_cache", kHarmless},
      {"use_mtp", kHarmless},
      {"watermarking_config", kRefused},
  };
  return kKeys;
}

std::vector<TokenId> EndTokens(JsonReader& json, int vocab) {
  std::vector<TokenId> tokens;
  for (const TokenId token : json.Ints("eos_token_id", 0, vocab - 1)) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
  return tokens;
}

absl::Status ReadGenerationConfig(const std::string& folder, ModelConfig* config) {
  const std::string path = absl::StrCat(folder, "/generation_config.json");
  auto json = JsonReader::Open(path, kMaxGenerationFileBytes);
  const bool missing = absl::IsNotFound(json.status());
  // Without this file, transformers reads the same keys from config.json.
  if (missing)
    json = JsonReader::Open(absl::StrCat(folder, "/config.json"), kMaxGenerationFileBytes);
  RETURN_IF_ERROR(json.status());
  const std::vector<std::string> keys = missing ? GenerationKeysOf(*json) : json->Keys();
  GenerationDefaults defaults;
  const bool do_sample = json->Bool("do_sample", false);
  const double temperature = json->Number("temperature", 0, 100, 1);
  defaults.temperature = do_sample ? temperature : 0;
  if (temperature != 1) defaults.given_temperature = static_cast<float>(temperature);
  defaults.top_p = json->Number("top_p", 0, 1, 1);
  // A missing key means that all tokens are kept, as in vLLM. transformers would silently keep 50.
  defaults.top_k = json->Int("top_k", 0, kMaxTopK, 0);
  defaults.min_p = json->Number("min_p", 0, 1, 0);
  defaults.end_tokens = EndTokens(*json, config->vocab);
  if (defaults.end_tokens.empty()) defaults.end_tokens = config->generation.end_tokens;
  if (defaults.top_p == 0) json->Fail("top_p", "more than 0");
  defaults.repetition_penalty = json->Number("repetition_penalty", 0.01, 100, 1);
  defaults.max_new_tokens = OptionalInt(*json, "max_new_tokens", 1);
  defaults.max_length = OptionalInt(*json, "max_length", 1);
  defaults.min_new_tokens = OptionalInt(*json, "min_new_tokens", 0);
  defaults.min_length = json->Int("min_length", 0, kMaxTokens, 0);
  ReadStopStrings(*json, &defaults);
  defaults.bad_words =
      json->IntLists("bad_words_ids", 0, config->vocab - 1, kMaxBadWords, kMaxBadWordTokens);
  std::erase_if(defaults.bad_words, [&](const std::vector<TokenId>& word) {
    const auto& ends = defaults.end_tokens;
    return word.size() == 1 && std::find(ends.begin(), ends.end(), word[0]) != ends.end();
  });
  for (const absl::string_view key : {"num_beams", "num_beam_groups"}) {
    json->Int(key, 1, kMaxTokens, 1);
  }
  CheckKeys(*json, keys, GenerationConfigKeys(), "", kIgnore, &config->warnings);
  RETURN_IF_ERROR(json->status());
  if (!missing) RETURN_IF_ERROR(WarnOfConfigJson(folder, &config->warnings));
  config->generation = std::move(defaults);
  return absl::OkStatus();
}

}  // namespace baton
