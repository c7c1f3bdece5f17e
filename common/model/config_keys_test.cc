#include "common/model/source/config_keys.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/source/model_config.h"
#include "common/model/source/model_family.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct ConfigCase {
  json value;                    // one that is not neutral
  json beside = json::object();  // other keys, without which the key has no effect
};

// One case for every row of ModelConfigKeys().
std::map<std::string, ConfigCase> ConfigCases() {
  const json last_layers = {
      {"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 0}};
  const json linear = {{"rope_type", "linear"}, {"factor", 2}};
  return {
      {"_attn_implementation", {"eager"}},
      {"_attn_implementation_autoset", {true}},
      {"_commit_hash", {"4d1a"}},
      {"_experts_implementation", {"eager"}},
      {"_flash_attn_2_enabled", {true}},
      {"_name_or_path", {"a/b"}},
      {"add_cross_attention", {true}},
      {"architectures", {{"MambaForCausalLM"}}},
      {"attention_bias", {true}},
      {"attention_chunk_size", {4}},
      {"attention_dropout", {0.1}},
      {"attn_implementation", {"eager"}},
      {"auto_map", {{{"AutoConfig", "configuration_x.XConfig"}}}},
      {"bos_token_id", {1}},
      {"chunk_size_feed_forward", {2}},
      {"classifier_dropout", {0.1}},
      {"compression_config", {{{"format", "dense"}}}},
      {"cross_attention_hidden_size", {8}},
      {"dtype", {"bfloat16"}},
      {"embd_pdrop", {0.1}},
      {"eos_token_id", {{1, 3}}},
      {"experts_implementation", {"eager"}},
      {"finetuning_task", {"chat"}},
      {"full_attn_mod", {1}},
      {"head_dim", {4}},
      {"hidden_act", {"gelu"}},
      {"hidden_dropout", {0.1}},
      {"hidden_size", {8}},
      {"id2label", {{{"0", "no"}}}},
      {"ignore_keys_at_rope_validation", {{"rope_theta"}}},
      {"initializer_range", {0.1}},
      {"intermediate_size", {8}},
      {"interpolate_factor", {1}},
      {"is_causal", {false}},
      {"is_decoder", {true}},
      {"is_encoder_decoder", {true}},
      {"is_llama_config", {true}},
      {"label2id", {{{"no", 0}}}},
      {"layer_types", {{"full_attention", "sliding_attention"}, last_layers}},
      {"lm_head_bias", {false}},
      {"max_position_embeddings", {32}},
      {"max_sequence_length", {64}},
      {"max_window_layers", {1, last_layers}},
      {"mlp_bias", {true}},
      {"model_type", {"gpt2"}},
      {"name_or_path", {"a/b"}},
      {"num_attention_heads", {1}},
      {"num_hidden_layers", {3}},
      {"num_key_value_heads", {2}},
      {"num_labels", {3}},
      {"original_max_position_embeddings",
       {8,
        {{"head_dim", 2},
         {"rope_scaling",
          {{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {2.0}}}}}}},
      {"output_attentions", {true}},
      {"output_hidden_states", {true}},
      {"pad_token_id", {0}},
      {"partial_rotary_factor", {0.5, {{"head_dim", 4}}}},
      {"per_layer_config", {{{"0", {{"intermediate_size", 8}}}}}},
      {"prefix", {"a"}},
      {"pretraining_tp", {2}},
      {"problem_type", {"regression"}},
      {"pruned_heads", {{{"0", {1}}}}},
      {"quantization", {{{"bits", 4}}}},
      {"quantization_config", {{{"quant_method", "awq"}}}},
      {"remove_invalid_values", {true}},
      {"resid_pdrop", {0.1}},
      {"return_dict", {false}},
      {"rms_norm_eps", {0.1}},
      {"rope_interleaved", {false}},
      {"rope_parameters", {linear}},
      {"rope_scaling", {linear}},
      {"rope_theta", {5000.0}},
      {"sep_token_id", {1}},
      {"sliding_window", {64, last_layers}},
      {"task_specific_params", {{{"a", 1}}}},
      {"tf_legacy_loss", {true}},
      {"tie_encoder_decoder", {true}},
      {"tie_last_hidden_states", {true}},
      {"tie_word_embeddings", {true}},
      {"tokenizer_class", {"LlamaTokenizer"}},
      {"torch_dtype", {"bfloat16"}},
      {"torchscript", {true}},
      {"transformers.js_config", {{{"dtype", "q4"}}}},
      {"transformers_version", {"4.51.0"}},
      {"use_bfloat16", {true}},
      {"use_cache", {false}},
      {"use_mrope", {false}},
      {"use_sliding_window", {true, {{"sliding_window", 3}, {"max_window_layers", 0}}}},
      {"vocab_size", {6}},
  };
}

// Returns config.json of the tiny model with the other keys that `model_type` needs, and those of
// `beside` that the family reads.
json ConfigOf(const ModelFamily& family, const json& beside) {
  json changes = {{"architectures", {family.architecture}}, {"model_type", family.model_type}};
  for (const auto& [key, value] : beside.items()) {
    for (const ConfigKey& row : ModelConfigKeys()) {
      if (row.key == key &&
          (row.families.empty() || absl::StrContains(row.families, family.model_type))) {
        changes[key] = value;
      }
    }
  }
  return changes;
}

TEST(ConfigKeysTest, EveryKeyHasItsDecisionInEveryFamily) {
  std::map<std::string, ConfigCase> cases = ConfigCases();
  std::string last;
  for (const ConfigKey& row : ModelConfigKeys()) {
    const std::string key(row.key);
    EXPECT_LT(last, key) << "the rows are in order";
    last = key;
    const auto found = cases.find(key);
    ASSERT_NE(found, cases.end()) << "a row without a test: " << key;
    for (const ModelFamily& family : ModelFamilies()) {
      SCOPED_TRACE(absl::StrCat(key, " ", family.model_type));
      const json base = ConfigOf(family, found->second.beside);
      json changes = base;
      changes[key] = found->second.value;
      json without = base;
      without.erase(key);
      const auto config = ReadTiny(changes);
      const auto plain = ReadTiny(without);
      if (!row.families.empty() && !absl::StrContains(row.families, family.model_type)) {
        ASSERT_TRUE(config.ok()) << config.status();
        EXPECT_THAT(
            config->warnings,
            ElementsAre(HasSubstr(absl::StrCat(
                "/config.json: ", key, " has no effect in a model of type ", family.model_type))));
        ModelConfig quiet = *config;
        quiet.warnings = plain->warnings;
        EXPECT_EQ(quiet, *plain);
      } else if (row.decision == KeyDecision::kObeyed) {
        // It has an effect, or this value is refused by its name.
        if (config.ok()) {
          EXPECT_THAT(config->warnings, IsEmpty());
          EXPECT_FALSE(plain.ok() && *config == *plain);
        } else {
          EXPECT_THAT(std::string(config.status().message()), HasSubstr(key));
        }
      } else if (row.decision == KeyDecision::kHarmless) {
        ASSERT_TRUE(config.ok()) << config.status();
        EXPECT_EQ(*config, *plain);
      } else {
        ASSERT_EQ(row.decision, KeyDecision::kRefused) << "no key of config.json is only warned of";
        EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(config.status().message()),
                    AllOf(HasSubstr(absl::StrCat("/config.json: ", key)), HasSubstr("expected ")));
      }
      // The neutral value is as if the key were not there.
      if (row.neutral != "null") {
        changes[key] = json::parse(row.neutral);
        const auto neutral = ReadTiny(changes);
        ASSERT_TRUE(neutral.ok()) << neutral.status();
        EXPECT_EQ(*neutral, *plain);
      }
    }
    cases.erase(found);
  }
  EXPECT_THAT(cases, IsEmpty()) << "tests without a row";
}

TEST(ConfigKeysTest, UnknownKeysAreNamedOnce) {
  const auto config = ReadTiny({{"unsloth_version", "2025.1"}, {"my_own", 1}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings,
              ElementsAre(HasSubstr("/config.json: Baton does not know my_own, unsloth_version and "
                                    "ignores them")));
}

TEST(ConfigKeysTest, UnknownKeysOfRopeScalingAreNamed) {
  const auto warnings = [](const json& rope) {
    return ReadTiny({{"rope_scaling", rope}})->warnings;
  };
  EXPECT_THAT(
      warnings({{"rope_type", "yarn"}, {"factor", 2}, {"attn_factor", 3}, {"finetuned", true}}),
      ElementsAre(HasSubstr("no model of this rope_type reads rope_scaling.attn_factor")));
  // As in transformers, rope_scaling without a type is of the type "default".
  EXPECT_THAT(warnings({{"factor", 2}}), ElementsAre(HasSubstr("reads rope_scaling.factor")));
  EXPECT_EQ(ReadTiny({{"rope_scaling", {{"rope_theta", 500}}}})->rope.theta, 500);
}

// transformers 5.24.0 reads the keys of generation_config.json from config.json if the former file
// is missing, and only then.
TEST(ConfigKeysTest, GenerationKeysCountOnlyWithoutGenerationConfig) {
  const json keys = {{"max_length", 12},
                     {"temperature", 0.5},
                     {"do_sample", true},
                     {"top_p", 1.0},
                     {"early_stopping", true}};
  const auto alone = ReadTiny(keys);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->generation.max_length, 12);
  EXPECT_EQ(alone->generation.temperature, 0.5f);
  EXPECT_THAT(alone->warnings, IsEmpty());
  const auto both = ReadTiny(keys, json::object());
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->generation, ReadTiny({})->generation);
  EXPECT_THAT(both->warnings,
              ElementsAre(HasSubstr("/config.json: only generation_config.json is read for "
                                    "do_sample, max_length, temperature")));
  EXPECT_THAT(std::string(ReadTiny({{"no_repeat_ngram_size", 2}}).status().message()),
              HasSubstr("/config.json: no_repeat_ngram_size is 2; expected 0, nothing else is "
                        "supported; --generation-config=ignore serves without it"));
  EXPECT_TRUE(ReadTiny({{"no_repeat_ngram_size", 2}}, json::object()).ok());
}

// Keys of config.json as Qwen2.5, Phi-4-mini, SmolLM and Yarn-Llama publish them.
TEST(ConfigKeysTest, PublishedKeysGiveNoWarning) {
  EXPECT_THAT(ReadTiny({{"use_mrope", false},
                        {"full_attn_mod", 1},
                        {"interpolate_factor", 1},
                        {"lm_head_bias", false},
                        {"is_llama_config", true},
                        {"rope_interleaved", false},
                        {"transformers.js_config", {{"kv_cache_dtype", "fp16"}}},
                        {"max_sequence_length", 2048},
                        {"sliding_window", nullptr},
                        {"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"finetuned", true}}}})
                  ->warnings,
              IsEmpty());
}

TEST(ConfigKeysTest, TheFilesOfTransformersGiveNoWarning) {
  for (const auto& folder : std::filesystem::directory_iterator(TestData(""))) {
    if (!folder.is_directory()) continue;
    const auto config = ReadModelConfig(folder.path());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->warnings, IsEmpty());
  }
}

// transformers 5.24.0 builds the model of `model_type`: here a Mistral, whose window is 4,096
// tokens by default.
TEST(ConfigKeysTest, AModelTypeThatIsNotTheArchitecturesIsRefused) {
  EXPECT_THAT(std::string(ReadTiny({{"model_type", "mistral"}}).status().message()),
              HasSubstr("/config.json: model_type is \"mistral\"; expected \"llama\", the type of "
                        "LlamaForCausalLM"));
  EXPECT_TRUE(ReadTiny({{"model_type", "llama"}}).ok());
  EXPECT_TRUE(ReadTiny({{"model_type", nullptr}}).ok());
}

}  // namespace
}  // namespace baton
