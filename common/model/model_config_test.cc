#include "common/model/source/model_config.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/source/model_family.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ModelConfigTest, FolderAsTransformersFourWritesIt) {
  auto config = ReadModelConfig(TestData("llama3_sharded_bf16"));
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(ReadGenerationConfig(TestData("llama3_sharded_bf16"), &*config), absl::OkStatus());
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->layers, 5);
  EXPECT_EQ(config->hidden, 64);
  EXPECT_EQ(config->intermediate, 104);
  EXPECT_EQ(config->heads, 4);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab, 111);
  EXPECT_EQ(config->context, 256);
  EXPECT_EQ(config->rms_epsilon, 1e-5f);
  EXPECT_EQ(config->rope.theta, 500000);
  EXPECT_EQ(config->rope.dims, 16);
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(config->rope.factor, 8);
  EXPECT_EQ(config->rope.low_freq_factor, 1);
  EXPECT_EQ(config->rope.high_freq_factor, 4);
  EXPECT_EQ(config->rope.original_context, 64);
  EXPECT_THAT(config->windows, IsEmpty());
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_FALSE(config->attention_bias);
  EXPECT_FALSE(config->mlp_bias);
  EXPECT_EQ(config->generation.temperature, 0.6f);
  EXPECT_EQ(config->generation.top_p, 0.9f);
  EXPECT_THAT(config->generation.end_tokens, ElementsAre(2, 3));
}

TEST(ModelConfigTest, RopeParametersOfTransformersFive) {
  const json llama3 = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                       {"factor", 32.0},          {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 16}};
  auto config = ReadTiny({{"rope_theta", nullptr}, {"rope_parameters", llama3}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.theta, 500000);
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(config->rope.factor, 32);

  config = ReadTiny({{"rope_theta", nullptr}, {"rope_parameters", {{"rope_theta", 123.0}}}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.theta, 123);
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kDefault);
}

// Every golden folder holds its configuration twice: as transformers 4 and as transformers 5 writes
// it.
TEST(ModelConfigTest, BothSpellingsOfEveryFamilyMeanTheSame) {
  int compared = 0;
  std::set<std::string> families;
  for (const auto& folder : std::filesystem::directory_iterator(TestData(""))) {
    if (!std::filesystem::exists(folder.path() / "config.transformers5.json")) continue;
    const auto four = ReadModelConfig(folder.path());
    ASSERT_TRUE(four.ok()) << four.status();
    TestFolder other;
    std::filesystem::copy(folder.path() / "config.transformers5.json", other.File("config.json"));
    std::filesystem::copy(folder.path() / "generation_config.json",
                          other.File("generation_config.json"));
    const auto five = ReadModelConfig(other.path());
    ASSERT_TRUE(five.ok()) << five.status();
    EXPECT_TRUE(*four == *five) << folder.path();
    families.insert(four->architecture);
    ++compared;
  }
  EXPECT_EQ(families.size(), ModelFamilies().size());
  EXPECT_GE(compared, 10);
}

TEST(ModelConfigTest, EveryFamilyTakesForGrantedWhatItsTransformersClassDoes) {
  const auto read = [](const char* architecture, json changes) {
    json config = {
        {"architectures", {architecture}}, {"num_hidden_layers", 3},    {"hidden_size", 64},
        {"intermediate_size", 6},          {"num_attention_heads", 32}, {"vocab_size", 5},
        {"max_position_embeddings", 9000}};
    for (const auto& [key, value] : changes.items()) config[key] = value;
    TestFolder folder;
    folder.Write("config.json", config.dump());
    const auto read = ReadModelConfig(folder.path());
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or(ModelConfig());
  };
  ModelConfig config = read("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_TRUE(config.attention_bias && config.mlp_bias);

  config = read("MistralForCausalLM", {{"attention_bias", true}});
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_THAT(config.windows, ElementsAre(4096, 4096, 4096));
  EXPECT_FALSE(config.attention_bias);
  config =
      read("MistralForCausalLM", {{"sliding_window", nullptr}, {"num_key_value_heads", nullptr}});
  EXPECT_THAT(config.windows, IsEmpty());
  EXPECT_EQ(config.kv_heads, 32);

  config = read("Qwen2ForCausalLM", {{"sliding_window", 7}, {"max_window_layers", 0}});
  EXPECT_THAT(config.windows, IsEmpty());
  EXPECT_EQ(config.head_dim, 2);
  config = read("Qwen2ForCausalLM", {{"use_sliding_window", true}, {"max_window_layers", 2}});
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 4096));
  EXPECT_THAT(read("Qwen2ForCausalLM", {{"use_sliding_window", true}}).windows, IsEmpty());

  config = read("Qwen3ForCausalLM",
                {{"use_sliding_window", true},
                 {"sliding_window", 5},
                 {"max_window_layers", 0},
                 {"layer_types", {"full_attention", "sliding_attention", "full_attention"}}});
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_THAT(config.windows, ElementsAre(0, 5, 0));

  config = read("Phi3ForCausalLM", {{"head_dim", 16}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(config.rms_epsilon, 1e-5f);
  EXPECT_EQ(config.rope.dims, 8);
  EXPECT_THAT(config.windows, IsEmpty());
  EXPECT_THAT(read("Phi3ForCausalLM", {{"sliding_window", 2047}}).windows,
              ElementsAre(2047, 2047, 2047));
}

TEST(ModelConfigTest, OldPhi3FoldersCallLongRopeSuOrYarn) {
  for (const char* name : {"su", "yarn", "longrope"}) {
    const json rope = {{"type", name}, {"short_factor", {1.5}}, {"long_factor", {4}}};
    const auto config = ReadTiny({{"architectures", {"Phi3ForCausalLM"}}, {"rope_scaling", rope}});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.type, RopeConfig::Type::kLongRope) << name;
    EXPECT_EQ(config->rope.original_context, 4096);
    EXPECT_THAT(config->rope.long_factor, ElementsAre(4));
  }
}

TEST(ModelConfigTest, ScalingsThatDoNotCountItStretchTheContext) {
  const auto context = [](const json& rope) {
    const auto config = ReadTiny({{"rope_scaling", rope}, {"head_dim", 4}});
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->context : 0;
  };
  EXPECT_EQ(context({{"rope_type", "linear"}, {"factor", 2.5}}), 160);
  EXPECT_EQ(context({{"rope_type", "dynamic"}, {"factor", 4}}), 256);
  EXPECT_EQ(context({{"rope_type", "yarn"}, {"factor", 4}}), 256);
  EXPECT_EQ(context({{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}}), 64);
  EXPECT_EQ(context({{"rope_type", "longrope"},
                     {"original_max_position_embeddings", 16},
                     {"short_factor", {1, 1}},
                     {"long_factor", {1, 2}}}),
            64);
}

TEST(ModelConfigTest, RopeScalingInItsOldSpelling) {
  auto config = ReadTiny({{"rope_scaling",
                           {{"type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 16}}}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kLlama3);
  config = ReadTiny({{"rope_scaling", {{"type", "default"}}}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kDefault);
}

TEST(ModelConfigTest, WhatTransformersTakesForGrantedIsTakenSo) {
  TestFolder folder;
  folder.Write("config.json", json({{"architectures", {"LlamaForCausalLM"}},
                                    {"num_hidden_layers", 1},
                                    {"hidden_size", 8},
                                    {"intermediate_size", 6},
                                    {"num_attention_heads", 2},
                                    {"vocab_size", 5},
                                    {"max_position_embeddings", 64},
                                    {"head_dim", nullptr},
                                    {"rope_scaling", nullptr},
                                    {"eos_token_id", nullptr}})
                                  .dump());
  const auto config = ReadModelConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 4);
  EXPECT_EQ(config->rms_epsilon, 1e-6f);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_THAT(config->generation.end_tokens, IsEmpty());
  EXPECT_EQ(config->generation.temperature, 0);
}

TEST(ModelConfigTest, WithoutDoSampleTheDefaultIsGreedy) {
  EXPECT_EQ(ReadTiny({}, {{"temperature", 0.7}})->generation.temperature, 0);
  EXPECT_EQ(ReadTiny({}, {{"do_sample", false}, {"temperature", 0.7}})->generation.temperature, 0);
  EXPECT_EQ(ReadTiny({}, {{"do_sample", true}})->generation.temperature, 1);
  const auto config = ReadTiny(
      {},
      {{"do_sample", true}, {"temperature", 0.7}, {"top_p", 0.8}, {"top_k", 20}, {"min_p", 0.1}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->generation.temperature, 0.7f);
  EXPECT_EQ(config->generation.top_p, 0.8f);
  EXPECT_EQ(config->generation.top_k, 20);
  EXPECT_EQ(config->generation.min_p, 0.1f);
  EXPECT_EQ(config->generation.repetition_penalty, 1);
  EXPECT_EQ(config->generation.min_new_tokens, std::nullopt);
  EXPECT_THAT(config->generation.bad_words, IsEmpty());
}

TEST(ModelConfigTest, EndTokensComeFromGenerationConfigAndElseFromConfig) {
  EXPECT_THAT(ReadTiny({})->generation.end_tokens, ElementsAre(2));
  EXPECT_THAT(ReadTiny({{"eos_token_id", {4, 1, 4}}})->generation.end_tokens, ElementsAre(4, 1));
  EXPECT_THAT(ReadTiny({}, {{"eos_token_id", 3}})->generation.end_tokens, ElementsAre(3));
  const auto penal = ReadTiny({}, {{"repetition_penalty", 1.05},
                                   {"min_new_tokens", 4},
                                   {"bad_words_ids", {{1, 3}, {2}, {3}, {2, 2}}}});
  ASSERT_TRUE(penal.ok()) << penal.status();
  EXPECT_EQ(penal->generation.repetition_penalty, 1.05f);
  EXPECT_EQ(penal->generation.min_new_tokens, 4);
  EXPECT_THAT(penal->generation.bad_words,
              ElementsAre(ElementsAre(1, 3), ElementsAre(3), ElementsAre(2, 2)));
  EXPECT_THAT(ReadTiny({}, {{"eos_token_id", {1, 3}}})->generation.end_tokens, ElementsAre(1, 3));
  EXPECT_THAT(ReadTiny({}, {{"do_sample", true}})->generation.end_tokens, ElementsAre(2));
}

// Allows one unit in the last place, because torch rounds some powers differently.
TEST(RopeInverseFrequencyTest, IsThatOfTransformersToTheLastPlace) {
  const json goldens = json::parse(std::ifstream(TestData("inverse_frequency.json")));
  ASSERT_GE(goldens.size(), 14u);
  for (const json& golden : goldens) {
    SCOPED_TRACE(golden["name"]);
    TestFolder folder;
    json file = TinyConfig();
    file.merge_patch(golden["config"]);
    folder.Write("config.json", file.dump());
    const auto config = ReadModelConfig(folder.path());
    ASSERT_TRUE(config.ok()) << config.status();
    const int tokens = golden["tokens"];
    const auto expected = golden["inverse_frequency"].get<std::vector<float>>();
    const auto got = RopeInverseFrequency(config->rope, RopeReach(config->rope, tokens, tokens));
    ASSERT_EQ(got.size(), expected.size());
    int others = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], expected[i] * 0x1p-23) << i;
      others += got[i] != expected[i];
    }
    EXPECT_LE(others, 1);
    EXPECT_NEAR(config->rope.attention_factor, golden["attention_factor"].get<double>(), 1e-12);
  }
}

TEST(RopeReachTest, OfOneTableForAllLengthsHasNoEnd) {
  RopeConfig rope;
  for (const auto type : {RopeConfig::Type::kDefault, RopeConfig::Type::kLinear,
                          RopeConfig::Type::kYarn, RopeConfig::Type::kLlama3}) {
    rope.type = type;
    EXPECT_EQ(RopeReach(rope, 1, 1), kEndlessReach);
    EXPECT_EQ(RopeReach(rope, 100, 1 << 28), kEndlessReach);
  }
}

TEST(RopeReachTest, LongRopeHasAShortAndALongTable) {
  RopeConfig rope;
  rope.type = RopeConfig::Type::kLongRope;
  rope.original_context = 32;
  EXPECT_EQ(RopeReach(rope, 5, 5), 32);
  EXPECT_EQ(RopeReach(rope, 32, 32), 32);
  EXPECT_EQ(RopeReach(rope, 32, 33), kEndlessReach);
  EXPECT_EQ(RopeReach(rope, 500, 500), kEndlessReach);
}

TEST(RopeReachTest, DynamicDoublesFromTheOriginalContextOrALongerPrompt) {
  RopeConfig rope;
  rope.type = RopeConfig::Type::kDynamic;
  rope.original_context = 32;
  EXPECT_EQ(RopeReach(rope, 5, 5), 32);
  EXPECT_EQ(RopeReach(rope, 5, 33), 64);
  EXPECT_EQ(RopeReach(rope, 5, 65), 128);
  EXPECT_EQ(RopeReach(rope, 47, 47), 47);
  EXPECT_EQ(RopeReach(rope, 47, 48), 94);
  EXPECT_EQ(RopeReach(rope, 47, 1 << 28), 47 << 23);
  // A sequence that is restarted at any length gets the rotary table that it would have had without
  // the restart.
  for (int tokens = 1; tokens < 300; ++tokens) {
    const int reach = RopeReach(rope, 21, tokens);
    EXPECT_GE(reach, tokens);
    EXPECT_EQ(RopeReach(rope, 21, reach), reach);
    EXPECT_GT(RopeReach(rope, 21, reach + 1), reach);
  }
}
}  // namespace
}  // namespace baton
