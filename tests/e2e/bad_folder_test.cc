// Checks that the programs refuse a broken model folder with one sentence, and with exit status 2.
// These tests have only a few faults of each kind; the tests of the file readers have all faults.

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/served_folder.h"
#include "tests/shell/run_shell.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Ended RunOn(const std::string& program, const ServedFolder& folder) {
  return RunShell(absl::StrCat("exec timeout 20 ", BATON_BINARY_DIR, "/", program,
                               " --listen=127.0.0.1:0 --model=", folder.path(), " </dev/null"));
}

struct BadFolder {
  const char* name;
  const char* program;
  const char* file;
  // Changes the contents of a file that is valid into contents that must be refused.
  std::function<std::string(const std::string&)> spoil;
  const char* says;
};

std::function<std::string(const std::string&)> Json(const std::function<void(json&)>& edit) {
  return [edit](const std::string& text) {
    json value = json::parse(text);
    edit(value);
    return value.dump();
  };
}

TEST(BadFolderTest, TheProgramsRefuseToStartAndSayWhatIsWrong) {
  const auto is = [](std::string text) { return [text](const std::string&) { return text; }; };
  const auto cut = [](size_t bytes) {
    return [bytes](const std::string& text) { return text.substr(0, bytes); };
  };
  constexpr char kRouter[] = "baton-router", kPrefill[] = "baton-prefill",
                 kDecode[] = "baton-decode";
  constexpr char kConfig[] = "config.json", kGeneration[] = "generation_config.json",
                 kTokenizer[] = "tokenizer.json", kWeights[] = "model.safetensors";
  const BadFolder cases[] = {
      {"no tokenizer", kRouter, kTokenizer, is(""), "tokenizer.json"},
      {"tokenizer cut short", kRouter, kTokenizer, cut(500), "tokenizer.json"},
      {"tokenizer a list", kRouter, kTokenizer, is("[]"), "found an array, expected an object"},
      {"tokenizer of another kind", kRouter, kTokenizer,
       Json([](json& j) { j["model"]["type"] = "Unigram"; }), "$.model.type is \"Unigram\""},
      {"tokenizer without merges", kRouter, kTokenizer,
       Json([](json& j) { j["model"].erase("merges"); }), "\"merges\" is missing"},
      {"tokenizer with a vocabulary that is no object", kRouter, kTokenizer,
       Json([](json& j) { j["model"]["vocab"] = 3; }), "$.model.vocab: found 3"},
      {"config not JSON, to the router", kRouter, kConfig, is("{"),
       "config.json: is not valid JSON"},
      {"unknown family, to the router", kRouter, kConfig,
       Json([](json& j) { j["architectures"] = {"GPT2LMHeadModel"}; }),
       "config.json: architectures is [\"GPT2LMHeadModel\"]; expected one of LlamaForCausalLM"},
      {"two families, to the router", kRouter, kConfig,
       Json([](json& j) { j["model_type"] = "mistral"; }),
       "config.json: model_type is \"mistral\"; expected \"qwen3\", the type of Qwen3ForCausalLM"},
      {"generation_config, to the router", kRouter, kGeneration, is("{\"eos_token_id\":-1}"),
       "generation_config.json: eos_token_id is -1; expected an integer from 0 to 276"},
      {"config not JSON, to a worker", kPrefill, kConfig, is("{"),
       "config.json: is not valid JSON"},
      {"unsupported rope", kDecode, kConfig, Json([](json& j) {
         j["rope_scaling"] = {{"rope_type", "mrope"}};
       }),
       "config.json: rope_scaling.rope_type is \"mrope\"; expected \"default\""},
      {"quantised", kDecode, kConfig, Json([](json& j) {
         j["quantization_config"] = {{"bits", 4}};
       }),
       "config.json: quantization_config is an object; expected no quantised weights"},
      {"weights cut short", kPrefill, kWeights, cut(100000), "model.safetensors: tensor \""},
      {"weights empty", kDecode, kWeights, is(""), "model.safetensors: has 0 bytes"},
      {"weights of other sizes", kDecode, kConfig,
       Json([](json& j) { j["intermediate_size"] = 50; }),
       "has shape [52, 36]; expected [50, 36] by config.json"},
      {"weights of another family", kPrefill, kConfig,
       Json([](json& j) { j["architectures"] = {"Phi3ForCausalLM"}, j["model_type"] = "phi3"; }),
       "has no tensor \"model.layers.0.self_attn.qkv_proj.weight\""},
  };
  for (const BadFolder& bad : cases) {
    SCOPED_TRACE(bad.name);
    const ServedFolder folder("qwen3_f32");
    folder.Write(bad.file, bad.spoil(folder.Read(bad.file)));
    const Ended ended = RunOn(bad.program, folder);
    EXPECT_EQ(ended.exit_status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(bad.says));
  }
}

}  // namespace
}  // namespace baton
