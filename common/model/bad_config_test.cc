#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/source/model_config.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct BadConfig {
  const char* name;
  json changes;      // merged into config.json
  json generation;   // generation_config.json, or null for none
  const char* says;  // part of the expected message, which also names the file
};

TEST(ModelConfigTest, BadValuesAreRefusedWithKeyFoundAndExpected) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 16}};
  const auto scaling = [&](const json& changes) {
    json rope = llama3;
    rope.merge_patch(changes);
    return json{{"rope_scaling", rope}};
  };
  const BadConfig cases[] = {
      {"unknown architecture",
       {{"architectures", {"MambaForCausalLM"}}},
       nullptr,
       "architectures is [\"MambaForCausalLM\"]; expected one of LlamaForCausalLM, "
       "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Phi3ForCausalLM"},
      {"no architecture",
       {{"architectures", nullptr}},
       nullptr,
       "architectures is missing; expected a list of strings"},
      {"two architectures",
       {{"architectures", {"LlamaForCausalLM", "X"}}},
       nullptr,
       "architectures is [\"LlamaForCausalLM\",\"X\"]"},
      {"architecture not a list",
       {{"architectures", "LlamaForCausalLM"}},
       nullptr,
       "architectures is \"LlamaForCausalLM\"; expected a list of strings"},
      {"architecture a number", {{"architectures", {7}}}, nullptr, "architectures is [7]"},
      {"activation",
       {{"hidden_act", "gelu"}},
       nullptr,
       "hidden_act is \"gelu\"; expected \"silu\""},
      {"quantised",
       {{"quantization_config", {{"bits", 4}}}},
       nullptr,
       "quantization_config is an object; expected no quantised weights"},
      {"quantised by a method with a name",
       {{"quantization_config", {{"quant_method", "awq"}}}},
       nullptr,
       "quantization_config.quant_method is \"awq\"; expected no quantised weights, which Baton "
       "does "
       "not read; serve the model's BF16 or F16 folder"},
      {"no layers", {{"num_hidden_layers", nullptr}}, nullptr, "num_hidden_layers is missing"},
      {"zero layers", {{"num_hidden_layers", 0}}, nullptr, "num_hidden_layers is 0; expected"},
      {"negative layers", {{"num_hidden_layers", -1}}, nullptr, "num_hidden_layers is -1"},
      {"endless layers",
       {{"num_hidden_layers", 1000000000}},
       nullptr,
       "num_hidden_layers is 1000000000; expected an integer from 1 to 4096"},
      {"layers beyond 32 bits", {{"num_hidden_layers", 4294967298}}, nullptr, "is 4294967298"},
      {"layers beyond 63 bits",
       {{"num_hidden_layers", 18446744073709551615u}},
       nullptr,
       "is 18446744073709551615"},
      {"layers a fraction", {{"num_hidden_layers", 2.5}}, nullptr, "num_hidden_layers is 2.5"},
      {"layers a string", {{"num_hidden_layers", "2"}}, nullptr, "num_hidden_layers is \"2\""},
      {"layers a list", {{"num_hidden_layers", {2}}}, nullptr, "num_hidden_layers is [2]"},
      {"layers a bool", {{"num_hidden_layers", true}}, nullptr, "num_hidden_layers is true"},
      {"hidden zero", {{"hidden_size", 0}}, nullptr, "hidden_size is 0"},
      {"hidden huge", {{"hidden_size", 2000000000}}, nullptr, "hidden_size is 2000000000"},
      {"hidden no multiple", {{"hidden_size", 5}}, nullptr, "hidden_size is 5; expected"},
      {"odd heads by division", {{"hidden_size", 6}}, nullptr, "hidden_size is 6; expected"},
      {"odd head_dim", {{"head_dim", 3}}, nullptr, "head_dim is 3; expected an even number"},
      {"huge head_dim", {{"head_dim", 65536}}, nullptr, "head_dim is 65536"},
      {"negative head_dim", {{"head_dim", -2}}, nullptr, "head_dim is -2"},
      {"no heads", {{"num_attention_heads", 0}}, nullptr, "num_attention_heads is 0"},
      {"kv_heads no divisor",
       {{"num_attention_heads", 2}, {"num_key_value_heads", 3}},
       nullptr,
       "num_key_value_heads is 3; expected a divisor of num_attention_heads, 2"},
      {"more kv_heads than heads",
       {{"num_key_value_heads", 4}},
       nullptr,
       "num_key_value_heads is 4"},
      {"vocabulary zero", {{"vocab_size", 0}}, nullptr, "vocab_size is 0"},
      {"vocabulary huge", {{"vocab_size", 1 << 30}}, nullptr, "vocab_size is 1073741824"},
      {"context missing",
       {{"max_position_embeddings", nullptr}},
       nullptr,
       "max_position_embeddings is missing"},
      {"intermediate negative", {{"intermediate_size", -6}}, nullptr, "intermediate_size is -6"},
      {"epsilon negative", {{"rms_norm_eps", -1e-5}}, nullptr, "rms_norm_eps is -1e-05"},
      {"epsilon a string", {{"rms_norm_eps", "small"}}, nullptr, "rms_norm_eps is \"small\""},
      {"theta zero", {{"rope_theta", 0}}, nullptr, "rope_theta is 0"},
      {"theta infinite", {{"rope_theta", 1e300}}, nullptr, "rope_theta is 1e+300"},
      {"tied a number",
       {{"tie_word_embeddings", 1}},
       nullptr,
       "tie_word_embeddings is 1; expected true or false"},
      {"bias a string", {{"attention_bias", "no"}}, nullptr, "attention_bias is \"no\""},
      {"other rope",
       {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 4}}}},
       nullptr,
       "rope_scaling.rope_type is \"proportional\"; expected \"default\", \"linear\", "
       "\"dynamic\", \"yarn\", \"longrope\" or \"llama3\""},
      {"other rope, old spelling",
       {{"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}}},
       nullptr,
       "rope_scaling.type is \"mrope\""},
      {"other rope, new spelling",
       {{"rope_parameters", {{"rope_type", "su"}}}},
       nullptr,
       "rope_parameters.rope_type is \"su\""},
      {"rope by layer",
       {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}},
       nullptr,
       "rope_parameters.full_attention is an object; expected no such key: one rotary embedding"},
      {"linear without factor",
       {{"rope_scaling", {{"type", "linear"}}}},
       nullptr,
       "rope_scaling.factor is missing"},
      {"linear, factor below one",
       {{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}},
       nullptr,
       "rope_scaling.factor is 0.5; expected a number from 1"},
      {"linear beyond every context",
       {{"max_position_embeddings", 1 << 27},
        {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}},
       nullptr,
       "max_position_embeddings is 134217728; expected with rope factor 4 a context of at most "
       "268435456 tokens"},
      {"dynamic of two dimensions",
       {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}},
       nullptr,
       "rope_scaling.rope_type is missing; expected another type: \"dynamic\" rotates at least 4"},
      {"yarn without factor",
       {{"rope_scaling", {{"rope_type", "yarn"}}}},
       nullptr,
       "rope_scaling.factor is missing"},
      {"yarn of theta one",
       {{"rope_theta", 1}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}},
       nullptr,
       "rope_theta is 1; expected more than 1"},
      {"yarn, beta a string",
       {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}, {"beta_fast", "32"}}}},
       nullptr,
       "rope_scaling.beta_fast is \"32\""},
      {"yarn, truncate a number",
       {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}, {"truncate", 1}}}},
       nullptr,
       "rope_scaling.truncate is 1; expected true or false"},
      {"longrope without factors",
       {{"rope_scaling", {{"rope_type", "longrope"}}}},
       nullptr,
       "rope_scaling.short_factor is missing; expected a list of 1 numbers"},
      {"longrope, factors of another head_dim",
       {{"rope_scaling",
         {{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1}}}}},
       nullptr,
       "rope_scaling.short_factor is [1,2]; expected a list of 1 numbers"},
      {"longrope, a factor of zero",
       {{"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {0}}}}},
       nullptr,
       "rope_scaling.long_factor is [0]; expected a list of 1 numbers from 1e-06"},
      {"longrope from one token",
       {{"rope_scaling",
         {{"rope_type", "longrope"},
          {"short_factor", {1}},
          {"long_factor", {1}},
          {"original_max_position_embeddings", 1}}}},
       nullptr,
       "rope_scaling.original_max_position_embeddings is 1; expected at least 2"},
      {"partial rope of Phi-3, nothing left",
       {{"architectures", {"Phi3ForCausalLM"}}, {"partial_rotary_factor", 0.5}},
       nullptr,
       "partial_rotary_factor is 0.5; expected an even number of at least 2 out of head_dim, 2"},
      {"window of Mistral zero",
       {{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 0}},
       nullptr,
       "sliding_window is 0; expected an integer from 1"},
      {"window of Qwen a string",
       {{"architectures", {"Qwen2ForCausalLM"}},
        {"use_sliding_window", true},
        {"sliding_window", "all"}},
       nullptr,
       "sliding_window is \"all\""},
      {"max_window_layers negative",
       {{"architectures", {"Qwen3ForCausalLM"}}, {"max_window_layers", -1}},
       nullptr,
       "max_window_layers is -1"},
      {"layer_types of another number of layers",
       {{"architectures", {"Qwen3ForCausalLM"}}, {"layer_types", {"full_attention"}}},
       nullptr,
       "layer_types is [\"full_attention\"]; expected for each of 2 layers"},
      {"layer_types unknown",
       {{"architectures", {"Qwen2ForCausalLM"}},
        {"layer_types", {"full_attention", "linear_attention"}}},
       nullptr,
       "layer_types is [\"full_attention\",\"linear_attention\"]; expected for each of 2 layers "
       "\"full_attention\", because there is no sliding window"},
      {"layer_types that Llama would not follow",
       {{"layer_types", {"full_attention", "sliding_attention"}}},
       nullptr,
       "expected for each of 2 layers \"full_attention\""},
      {"layer_types that Mistral would not follow",
       {{"architectures", {"MistralForCausalLM"}},
        {"layer_types", {"full_attention", "sliding_attention"}}},
       nullptr,
       "expected for each of 2 layers \"sliding_attention\""},
      {"a window of Llama",
       {{"sliding_window", 8}},
       nullptr,
       "sliding_window is 8; expected none, or at least the context, 64"},
      {"quantised by MLX",
       {{"quantization", {{"bits", 4}}}},
       nullptr,
       "quantization is an object; expected no quantised weights"},
      {"rope a string",
       {{"rope_scaling", "llama3"}},
       nullptr,
       "rope_scaling is \"llama3\"; expected an object"},
      {"rope without factor", scaling({{"factor", nullptr}}), nullptr,
       "rope_scaling.factor is missing"},
      {"rope factor zero", scaling({{"factor", 0}}), nullptr, "rope_scaling.factor is 0"},
      {"rope band empty", scaling({{"high_freq_factor", 1}}), nullptr,
       "rope_scaling.high_freq_factor is 1; expected more than low_freq_factor, 1"},
      {"rope context zero", scaling({{"original_max_position_embeddings", 0}}), nullptr,
       "rope_scaling.original_max_position_embeddings is 0"},
      {"partial rope", {{"partial_rotary_factor", 0.5}}, nullptr, "partial_rotary_factor is 0.5"},
      {"end token outside",
       {{"eos_token_id", 5}},
       nullptr,
       "eos_token_id is 5; expected an integer from 0 to 4, or a list of such integers"},
      {"end token in a list of strings",
       {{"eos_token_id", {"2"}}},
       nullptr,
       "eos_token_id is [\"2\"]"},
      {"generation: end token", {}, {{"eos_token_id", {2, -1}}}, "eos_token_id is [2,-1]"},
      {"generation: do_sample", {}, {{"do_sample", "yes"}}, "do_sample is \"yes\""},
      {"generation: temperature",
       {},
       {{"do_sample", true}, {"temperature", -1}},
       "temperature is -1"},
      {"generation: top_p", {}, {{"top_p", 1.5}}, "top_p is 1.5"},
      {"generation: repetition_penalty",
       {},
       {{"repetition_penalty", -1}},
       "repetition_penalty is -1"},
      {"generation: no repetition_penalty at all",
       {},
       {{"repetition_penalty", 0}},
       "repetition_penalty is 0; expected"},
      {"generation: repetition_penalty that makes infinities",
       {},
       {{"repetition_penalty", 1e-38}},
       "repetition_penalty is 1e-38; expected"},
      {"generation: no beams",
       {},
       {{"num_beams", 0}},
       "num_beams is 0; expected an integer from 1"},
      {"generation: n-grams",
       {},
       {{"no_repeat_ngram_size", 3}},
       "no_repeat_ngram_size is 3; expected 0, nothing else is supported; "
       "--generation-config=ignore "
       "serves without it"},
      {"generation: suppressed tokens",
       {},
       {{"suppress_tokens", {1}}},
       "suppress_tokens is [1]; expected [], nothing else is supported"},
      {"generation: min_new_tokens", {}, {{"min_new_tokens", "many"}}, "min_new_tokens is"},
      {"generation: bad word",
       {},
       {{"bad_words_ids", {{1, -1}}}},
       "bad_words_ids is a list of 1; expected at most 256 lists of 1 to 1024 of an integer from "
       "0"},
      {"generation: bad words of one list",
       {},
       {{"bad_words_ids", {1, 2}}},
       "bad_words_ids is [1,2]; expected at most 256 lists of 1 to 1024"},
      {"generation: empty bad word",
       {},
       {{"bad_words_ids", {{1}, json::array()}}},
       "bad_words_ids is a list of 2; expected"},
      {"generation: top_p zero", {}, {{"top_p", 0}}, "top_p is 0; expected more than 0"},
      {"generation: top_k", {}, {{"top_k", -3}}, "top_k is -3"},
      {"generation: min_p", {}, {{"min_p", "0.1"}}, "min_p is \"0.1\""},
  };
  for (const BadConfig& bad : cases) {
    const auto config = ReadTiny(bad.changes, bad.generation);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.says)) << bad.name;
    EXPECT_THAT(
        std::string(config.status().message()),
        HasSubstr(bad.generation.is_null() ? "/config.json: " : "/generation_config.json: "))
        << bad.name;
  }
}

TEST(ModelConfigTest, BrokenFilesAreRefused) {
  const struct {
    const char* name;
    std::string text;
    const char* says;
  } cases[] = {
      {"empty", "", "is not valid JSON (0 bytes)"},
      {"cut short", "{\"architectures\": [\"Llama", "is not valid JSON"},
      {"not JSON", "hidden_size = 4", "is not valid JSON"},
      {"a list", "[1, 2]", "expected a JSON object"},
      {"a number", "7", "is 7; expected a JSON object"},
      {"invalid UTF-8", "{\"architectures\": [\"\xff\xfe\"]}", "is not valid JSON"},
      {"number too large", "{\"hidden_size\": 1e999}", "is not valid JSON"},
      {"NaN", "{\"rms_norm_eps\": NaN}", "is not valid JSON"},
      {"deep", std::string(200'000, '['), "is not valid JSON"},
      {"deep and whole",
       absl::StrCat("{\"architectures\":", std::string(100'000, '['), std::string(100'000, ']'),
                    "}"),
       "architectures is a list of 1"},
      {"too large", std::string((4 << 20) + 1, ' '), "bytes; expected at most 4194304"},
  };
  for (const auto& bad : cases) {
    TestFolder folder;
    folder.Write("config.json", bad.text);
    const auto config = ReadModelConfig(folder.path());
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.says)) << bad.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("/config.json")) << bad.name;

    TestFolder generation;
    generation.Write("config.json", TinyConfig().dump());
    generation.Write("generation_config.json", bad.text);
    ModelConfig config_of_generation = *ReadModelConfig(generation.path());
    EXPECT_EQ(ReadGenerationConfig(generation.path(), &config_of_generation).ok(),
              bad.name == std::string("deep and whole"))
        << bad.name;
  }
}

TEST(ModelConfigTest, MissingFolderOrFileIsNotFound) {
  TestFolder folder;
  EXPECT_TRUE(absl::IsNotFound(ReadModelConfig(folder.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadModelConfig(folder.File("nowhere")).status()));
  folder.Write("file", "x");
  const auto not_a_folder = ReadModelConfig(folder.File("file")).status();
  EXPECT_FALSE(not_a_folder.ok());
  EXPECT_THAT(std::string(not_a_folder.message()),
              HasSubstr("file' is a file; give the folder that holds"));
}

}  // namespace
}  // namespace baton
