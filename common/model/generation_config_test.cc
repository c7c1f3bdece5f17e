#include "common/model/source/generation_config.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/source/model_config.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct KeyCase {
  json value;  // one that is not neutral
  // For keys that are obeyed: the effect of the value.
  std::function<bool(const GenerationDefaults&)> obeyed = nullptr;
};

// One case for every row of GenerationConfigKeys(). The values of refused keys are ones that
// transformers takes.
std::map<std::string, KeyCase> Cases() {
  using D = const GenerationDefaults&;
  return {
      {"_commit_hash", {"4d1a"}},
      {"_from_model_config", {true}},
      {"_original_object_hash", {7}},
      {"assistant_confidence_threshold", {0.4}},
      {"assistant_early_exit", {2}},
      {"assistant_ensemble_weight", {0.5}},
      {"assistant_lookbehind", {10}},
      {"bad_words_ids", {{{1, 3}}, [](D d) { return d.bad_words.size() == 1; }}},
      {"begin_suppress_tokens", {{1}}},
      {"bos_token_id", {1}},
      {"cache_config", {{{"nbits", 4}}}},
      {"cache_implementation", {"hybrid"}},
      {"compile_config", {{{"dynamic", true}}}},
      {"constraints", {{1}}},
      {"continuous_batching_config", {{{"max_batch", 4}}}},
      {"decoder_start_token_id", {0}},
      {"disable_compile", {true}},
      {"diversity_penalty", {0.5}},
      {"do_sample", {true, [](D d) { return d.temperature == 1; }}},
      {"dola_layers", {"low"}},
      {"early_stopping", {true}},
      {"encoder_no_repeat_ngram_size", {2}},
      {"encoder_repetition_penalty", {1.2}},
      {"eos_token_id",
       {{1, 3},
        [](D d) {
          return d.end_tokens == std::vector<TokenId>{1, 3};
        }}},
      {"epsilon_cutoff", {3e-4}},
      {"eta_cutoff", {3e-4}},
      {"exponential_decay_length_penalty", {{15, 1.6}}},
      {"force_words_ids", {{{1}}}},
      {"forced_bos_token_id", {1}},
      {"forced_decoder_ids", {{{1, 3}}}},
      {"forced_eos_token_id", {2}},
      {"generation_kwargs", {{{"a", 1}}}},
      {"guidance_scale", {1.5}},
      {"is_assistant", {true}},
      {"length_penalty", {2.0}},
      {"low_memory", {true}},
      {"max_cache_len", {512}},
      {"max_length", {4096, [](D d) { return d.max_length == 4096; }}},
      {"max_matching_ngram_size", {3}},
      {"max_new_tokens", {40, [](D d) { return d.max_new_tokens == 40; }}},
      {"max_time", {2.5}},
      {"min_length", {9, [](D d) { return d.min_length == 9; }}},
      {"min_new_tokens", {5, [](D d) { return d.min_new_tokens == 5; }}},
      {"min_p", {0.1, [](D d) { return d.min_p == 0.1f; }}},
      {"no_repeat_ngram_size", {3}},
      {"num_assistant_tokens", {20}},
      {"num_assistant_tokens_schedule", {"constant"}},
      {"num_beam_groups", {2}},
      {"num_beams", {4}},
      {"num_return_sequences", {2}},
      {"output_attentions", {true}},
      {"output_hidden_states", {true}},
      {"output_logits", {true}},
      {"output_scores", {true}},
      {"pad_token_id", {0}},
      {"penalty_alpha", {0.6}},
      {"prefill_chunk_size", {128}},
      {"prompt_lookup_num_tokens", {10}},
      {"remove_invalid_values", {true}},
      {"renormalize_logits", {true}},
      {"repetition_penalty", {1.1, [](D d) { return d.repetition_penalty == 1.1f; }}},
      {"return_dict_in_generate", {true}},
      {"return_legacy_cache", {true}},
      {"sequence_bias", {{{{1}, -10.0}}}},
      {"speculation_type", {"mtp"}},
      {"stop_strings", {"END", [](D d) { return d.stop_strings.size() == 1; }}},
      {"suppress_tokens", {{1}}},
      {"target_lookbehind", {10}},
      {"temperature", {0.6, [](D d) { return d.temperature == 0.6f; }}},
      {"token_healing", {true}},
      {"top_h", {0.4}},
      {"top_k", {20, [](D d) { return d.top_k == 20; }}},
      {"top_p", {0.8, [](D d) { return d.top_p == 0.8f; }}},
      {"transformers_version", {"4.51.0"}},
      {"typical_p", {0.9}},
      {"use_cache", {false}},
      {"use_mtp", {true}},
      {"watermarking_config", {{{"greenlist_ratio", 0.25}}}},
  };
}

TEST(GenerationConfigTest, EveryKeyHasItsDecision) {
  std::map<std::string, KeyCase> cases = Cases();
  std::string last;
  for (const ConfigKey& row : GenerationConfigKeys()) {
    const std::string key(row.key);
    SCOPED_TRACE(key);
    EXPECT_LT(last, key) << "the rows are in order";
    last = key;
    const auto found = cases.find(key);
    ASSERT_NE(found, cases.end()) << "a row without a test";
    json file = {{key, found->second.value}};
    if (key == "temperature") file["do_sample"] = true;
    const auto config = ReadTiny({}, file);
    switch (row.decision) {
      case KeyDecision::kObeyed:
        ASSERT_TRUE(config.ok()) << config.status();
        ASSERT_TRUE(found->second.obeyed);
        EXPECT_TRUE(found->second.obeyed(config->generation));
        EXPECT_THAT(config->warnings, IsEmpty());
        break;
      case KeyDecision::kHarmless:
        ASSERT_TRUE(config.ok()) << config.status();
        EXPECT_EQ(config->generation, ReadTiny({})->generation);
        EXPECT_THAT(config->warnings, IsEmpty());
        break;
      case KeyDecision::kWarned:
        ASSERT_TRUE(config.ok()) << config.status();
        EXPECT_EQ(config->generation, ReadTiny({})->generation);
        EXPECT_THAT(config->warnings, ElementsAre(HasSubstr(absl::StrCat(
                                          "/generation_config.json: ", key, " has no effect"))));
        break;
      case KeyDecision::kRefused:
        EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(config.status().message()),
                    AllOf(HasSubstr(absl::StrCat("/generation_config.json: ", key, " is ")),
                          HasSubstr("nothing else is supported; --generation-config=ignore")));
        break;
    }
    // null and the neutral value are as if the key were not there.
    for (const json& neutral : {json(nullptr), json::parse(row.neutral)}) {
      const auto none = ReadTiny({}, {{key, neutral}});
      ASSERT_TRUE(none.ok()) << none.status();
      EXPECT_EQ(*none, *ReadTiny({})) << neutral;
    }
    cases.erase(found);
  }
  EXPECT_THAT(cases, IsEmpty()) << "tests without a row";
}

TEST(GenerationConfigTest, UnknownKeysAreNamedOnce) {
  const auto config =
      ReadTiny({}, {{"unsloth_version", "2025.1"}, {"num_beams", 3}, {"my_own", {{"a", 1}}}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings,
              ElementsAre(HasSubstr("/generation_config.json: num_beams has no effect here; Baton "
                                    "does not know my_own, unsloth_version and ignores them")));
}

TEST(GenerationConfigTest, NeutralNumbersMayHaveAFraction) {
  EXPECT_TRUE(
      ReadTiny({}, {{"no_repeat_ngram_size", 0.0}, {"typical_p", 1}, {"num_beams", 1}}).ok());
}

TEST(GenerationConfigTest, StopStringsMayBeOneOrSeveral) {
  EXPECT_THAT(ReadTiny({}, {{"stop_strings", "a"}})->generation.stop_strings, ElementsAre("a"));
  EXPECT_THAT(ReadTiny({}, {{"stop_strings", {"a", "\n\n"}}})->generation.stop_strings,
              ElementsAre("a", "\n\n"));
  EXPECT_THAT(ReadTiny({}, {{"stop_strings", json::array()}})->generation.stop_strings, IsEmpty());
  for (const json& bad : {json(""), json(7), json({"a", ""}), json(std::string(1001, 'x')),
                          json(std::vector<std::string>(17, "x"))}) {
    EXPECT_THAT(std::string(ReadTiny({}, {{"stop_strings", bad}}).status().message()),
                HasSubstr("stop_strings is "))
        << bad;
  }
}

TEST(GenerationConfigTest, LengthsOutsideOfTheirRangesAreRefused) {
  for (const char* key : {"max_new_tokens", "max_length"}) {
    EXPECT_THAT(std::string(ReadTiny({}, {{key, 0}}).status().message()),
                HasSubstr(absl::StrCat(key, " is 0; expected an integer from 1")));
  }
  for (const char* key : {"min_new_tokens", "min_length"}) {
    EXPECT_THAT(std::string(ReadTiny({}, {{key, -1}}).status().message()),
                HasSubstr(absl::StrCat(key, " is -1; expected an integer from 0")));
  }
}

TEST(GenerationConfigTest, WithoutTheFileEndTokensAreThoseOfTheConfig) {
  const auto none = ReadTiny({});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->generation.end_tokens, ElementsAre(2));
  EXPECT_THAT(ReadTiny({}, json::object())->generation.end_tokens, ElementsAre(2));
}

}  // namespace
}  // namespace baton
