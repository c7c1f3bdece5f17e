#include <algorithm>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "common/model/reference_backend.h"
#include "common/model/source/checkpoint.h"
#include "common/model/source/safetensors_file.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

absl::Status Load(const TestFolder& folder) {
  ReferenceBackend backend;
  return Model::Load(folder.path(), &backend).status();
}

struct BadFolder {
  std::string name;
  std::function<void(const TestFolder&)> spoil;  // damages a folder that holds the tiny model
  std::vector<std::string> says;                 // texts that the message must contain
};

BadFolder BadHeader(std::string name, std::string from, std::string to,
                    std::vector<std::string> says) {
  const auto spoil = [from, to](const TestFolder& folder) {
    folder.EditHeader(kWeights, [&](std::string& header) {
      const size_t at = header.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      header.replace(at, from.size(), to);
    });
  };
  says.push_back("/model.safetensors: ");
  return {std::move(name), spoil, std::move(says)};
}

BadFolder BadTensors(std::string name, std::function<void(std::vector<TestTensor>&)> edit,
                     std::vector<std::string> says) {
  const auto spoil = [edit](const TestFolder& folder) {
    auto tensors = TinyTensors();
    edit(tensors);
    folder.Write(kWeights, SafetensorsBytes(tensors));
  };
  says.push_back("/model.safetensors: ");
  return {std::move(name), spoil, std::move(says)};
}

BadFolder BadBytes(std::string name, std::function<void(std::string&)> edit,
                   std::vector<std::string> says) {
  const auto spoil = [edit](const TestFolder& folder) {
    std::string bytes = folder.Read(kWeights);
    edit(bytes);
    folder.Write(kWeights, bytes);
  };
  says.push_back("/model.safetensors: ");
  return {std::move(name), spoil, std::move(says)};
}

BadFolder BadShards(std::string name, std::function<void(const TestFolder&)> spoil,
                    std::vector<std::string> says) {
  return {std::move(name),
          [spoil](const TestFolder& folder) {
            ShardTinyModel(folder);
            spoil(folder);
          },
          std::move(says)};
}

TestTensor& Find(std::vector<TestTensor>& tensors, absl::string_view name) {
  for (auto& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name;
  return tensors.front();
}

void SetLength(std::string& file, uint64_t length) {
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> 8 * i);
}

std::vector<BadFolder> BadFiles() {
  return {
      BadBytes("empty", [](auto& file) { file.clear(); }, {"has 0 bytes; expected at least"}),
      BadBytes("length cut", [](auto& file) { file.resize(5); },
               {"has 5 bytes; expected at least"}),
      BadBytes("length alone", [](auto& file) { file.resize(8); }, {"header length is"}),
      BadBytes("header cut", [](auto& file) { file.resize(50); }, {"expected at most 42"}),
      BadBytes("header length zero", [](auto& file) { SetLength(file, 0); },
               {"header of 0 bytes does not begin with '{'"}),
      BadBytes("header length huge", [](auto& file) { SetLength(file, ~uint64_t{0}); },
               {"header length is 18446744073709551615; expected at most"}),
      BadBytes("header length negative", [](auto& file) { SetLength(file, uint64_t{1} << 63); },
               {"header length is 9223372036854775808"}),
      BadBytes("header length past the end", [](auto& file) { SetLength(file, file.size() - 7); },
               {"header length is", "expected at most"}),
      BadBytes("header length short", [](auto& file) { SetLength(file, 100); },
               {"header is not a JSON object"}),
      BadBytes("header of noise", [](auto& file) { std::fill_n(&file[8], 64, '\xa5'); },
               {"does not begin with '{'"}),
      BadBytes("another format", [](auto& file) { file = "PK\x03\x04" + std::string(100, 'x'); },
               {"header length is"}),
      BadBytes("last byte missing", [](auto& file) { file.pop_back(); },
               {"tensor \"lm_head.weight\" lies at", "expected inside its"}),
      BadBytes("half of the data missing", [](auto& file) { file.resize(file.size() - 400); },
               {"lies at", "expected inside its"}),
      BadBytes("a byte too many", [](auto& file) { file.push_back('x'); },
               {"bytes of data; expected"}),
      BadHeader("not JSON", "\"dtype\"", "dtype", {"header is not a JSON object"}),
      BadHeader("begins with a space", "{", " {", {"does not begin with '{'"}),
      BadHeader("invalid UTF-8", "lm_head", "lm_\xff\xfe", {"header is not a JSON object"}),
      BadHeader("two values", "{", "{}{", {"header is not a JSON object"}),
      BadHeader("metadata a list", "{\"format\":\"pt\"}", "[1]",
                {"__metadata__ is not one object"}),
      BadHeader("deep", "{\"format\":\"pt\"}", std::string(5000, '['),
                {"header is not a JSON object"}),
      BadHeader("tensor a string", "\"lm_head.weight\":{", "\"x\":\"y\",\"lm_head.weight\":{",
                {"tensor \"x\" is not an object"}),
      BadHeader("tensor twice", "\"lm_head.weight\":{",
                "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                "\"lm_head.weight\":{",
                {"tensor \"lm_head.weight\" occurs twice"}),
      BadHeader("key twice", "\"dtype\":\"F32\"", "\"dtype\":\"F32\",\"dtype\":\"F32\"",
                {"dtype is not one string"}),
      BadHeader("unknown key", "\"dtype\":\"F32\"", "\"dtype\":\"F32\",\"strides\":[1]",
                {"has the unknown key \"strides\""}),
      BadHeader("no dtype", "\"dtype\":\"F32\",", "", {"embed_tokens", "has no dtype"}),
      BadHeader("dtype a number", "\"dtype\":\"F32\"", "\"dtype\":32", {"dtype is not one string"}),
      BadHeader("no shape", "\"shape\":[5,4],", "", {"embed_tokens", "has no shape"}),
      BadHeader("shape negative", "[5,4]", "[-5,-4]", {"shape holds something else"}),
      BadHeader("shape fractional", "[5,4]", "[5.0,4]", {"shape holds something else"}),
      BadHeader("shape nested", "[5,4]", "[[5,4]]", {"shape holds something else"}),
      BadHeader("shape overflows", "[5,4]", "[4294967296,4294967296,4294967296]",
                {"more elements than 64 bits can count"}),
      BadHeader("bytes overflow", "[5,4]", "[2305843009213693952,2]",
                {"more elements than 64 bits can count"}),
      BadHeader("shape wraps round to the size", "[5,4]", "[4611686018427387905,4,5]",
                {"more elements than 64 bits can count"}),
      BadHeader("shape does not match bytes", "[5,4]", "[5,5]",
                {"has 80 bytes; expected 100 for F32 [5, 5]"}),
      BadHeader("shape of another type", "\"dtype\":\"F32\"", "\"dtype\":\"BF16\"",
                {"has 80 bytes; expected 40 for BF16 [5, 4]"}),
      BadHeader("no offsets", ",\"data_offsets\":[0,80]", "", {"has no data_offsets"}),
      BadHeader("one offset", "[0,80]", "[0]", {"data_offsets is not a list of two"}),
      BadHeader("three offsets", "[0,80]", "[0,40,80]", {"data_offsets is not a list of two"}),
      BadHeader("negative offset", "[0,80]", "[-80,0]", {"data_offsets is not a list of two"}),
      BadHeader("offsets reversed", "[0,80]", "[80,0]", {"begin at 80 and end before that, at 0"}),
      BadHeader("offsets past the end", "[0,80]", "[1000000,1000080]",
                {"lies at [1000000, 1000080) of the data; expected inside its"}),
      BadHeader("offsets at the end of the numbers", "[0,80]",
                "[18446744073709551535,18446744073709551615]", {"lies at [18446744073709551535"}),
      BadHeader("overlap", "[80,96]", "[64,80]", {"inside the tensor before it; expected 80"}),
      BadHeader("hole", "[80,96]", "[96,112]", {"with a gap after the tensor before it"}),
      BadHeader("hole at the start", "[0,80]", "[4,84]", {"begins at byte 4", "expected 0"}),
  };
}

std::vector<BadFolder> BadModels() {
  using Tensors = std::vector<TestTensor>&;
  return {
      BadTensors("no tensors", [](Tensors tensors) { tensors.clear(); },
                 {"has no tensor \"model.embed_tokens.weight\"; expected one of shape [5, 4]"}),
      BadTensors("head missing", [](Tensors tensors) { tensors.pop_back(); },
                 {"has no tensor \"lm_head.weight\"; expected one of shape [5, 4]"}),
      BadTensors("norm missing", [](Tensors t) { Find(t, "model.norm.weight").name = "lm_head.x"; },
                 {"has no tensor \"model.norm.weight\"; expected one of shape [4]"}),
      BadTensors("matrix with a wrong row count",
                 [](Tensors t) {
                   Find(t, "model.layers.1.self_attn.k_proj.weight").shape = {4, 4};
                 },
                 {"\"model.layers.1.self_attn.k_proj.weight\" has shape [4, 4]; expected [2, 4] by "
                  "config.json"}),
      BadTensors("matrix transposed",
                 [](Tensors t) {
                   Find(t, "model.layers.0.mlp.down_proj.weight").shape = {6, 4};
                 },
                 {"has shape [6, 4]; expected [4, 6]"}),
      BadTensors("vector with two dimensions",
                 [](Tensors t) {
                   Find(t, "model.norm.weight").shape = {1, 4};
                 },
                 {"\"model.norm.weight\" has shape [1, 4]; expected [4]"}),
      BadTensors("matrix flat", [](Tensors t) { Find(t, "lm_head.weight").shape = {20}; },
                 {"\"lm_head.weight\" has shape [20]; expected [5, 4]"}),
      BadTensors("scalar", [](Tensors t) { Find(t, "model.norm.weight").shape = {}; },
                 {"\"model.norm.weight\" has shape []; expected [4]"}),
      BadTensors("empty", [](Tensors t) { Find(t, "model.norm.weight").shape = {0}; },
                 {"\"model.norm.weight\" has shape [0]; expected [4]"}),
      BadTensors("bias that config.json denies",
                 [](Tensors t) {
                   t.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {4}});
                 },
                 {"has tensor \"model.layers.0.self_attn.q_proj.bias\"; expected none",
                  "no attention_bias"}),
      BadHeader("integers", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"",
                {"\"model.embed_tokens.weight\" has type I32; expected BF16, F16 or F32"}),
      BadHeader("unknown type", "\"dtype\":\"F32\"", "\"dtype\":\"F6_E3M2\"",
                {"has type F6_E3M2; expected BF16, F16 or F32"}),
      {"no weights",
       [](const TestFolder& folder) { folder.Remove(kWeights); },
       {"no weights: neither ", kWeights, kIndex}},
      {"weights a folder",
       [](const TestFolder& folder) {
         folder.Remove(kWeights);
         std::filesystem::create_directory(folder.File(kWeights));
       },
       {"/model.safetensors: not a regular file"}},
      {"weights a link to nothing",
       [](const TestFolder& folder) {
         folder.Remove(kWeights);
         std::filesystem::create_symlink("nowhere", folder.File(kWeights));
       },
       {"no weights: neither "}},
      {"more layers in config.json",
       [](const TestFolder& folder) {
         folder.EditJson("config.json", [](json& c) { c["num_hidden_layers"] = 3; });
       },
       {"has no tensor \"model.layers.2.input_layernorm.weight\""}},
      {"another vocabulary in config.json",
       [](const TestFolder& folder) {
         folder.EditJson("config.json", [](json& c) { c["vocab_size"] = 6; });
       },
       {"\"model.embed_tokens.weight\" has shape [5, 4]; expected [6, 4] by config.json"}},
      {"biases that the file has not",
       [](const TestFolder& folder) {
         folder.EditJson("config.json", [](json& c) { c["mlp_bias"] = true; });
       },
       {"has no tensor \"model.layers.0.mlp.gate_proj.bias\"; expected one of shape [6]"}},
      {"another head_dim in config.json",
       [](const TestFolder& folder) {
         folder.EditJson("config.json", [](json& c) { c["head_dim"] = 4; });
       },
       {"q_proj.weight\" has shape [4, 4]; expected [8, 4] by config.json"}},
      BadShards("index not JSON", [](const TestFolder& f) { f.Write(kIndex, "{"); },
                {kIndex, "is not valid JSON"}),
      BadShards("index without a map", [](const TestFolder& f) { f.Write(kIndex, "{}"); },
                {kIndex, "weight_map is missing; expected an object of strings"}),
      BadShards("index with a list",
                [](const TestFolder& f) { f.Write(kIndex, "{\"weight_map\":[]}"); },
                {kIndex, "weight_map is []; expected an object of strings"}),
      BadShards("index of numbers",
                [](const TestFolder& f) { f.Write(kIndex, "{\"weight_map\":{\"a\":1}}"); },
                {kIndex, "expected an object of strings"}),
      BadShards("shard missing", [](const TestFolder& f) { f.Remove("model-2.safetensors"); },
                {"/model-2.safetensors"}),
      BadShards("shard cut short",
                [](const TestFolder& f) {
                  f.Write("model-2.safetensors", f.Read("model-2.safetensors").substr(0, 200));
                },
                {"/model-2.safetensors: header length is"}),
      BadShards("shards swapped",
                [](const TestFolder& f) {
                  f.Write("model-1.safetensors", f.Read("model-2.safetensors"));
                },
                {"/model-1.safetensors: has no tensor", "expected by", kIndex}),
      BadShards("tensor not in the index",
                [](const TestFolder& f) {
                  f.EditJson(kIndex, [](json& i) { i["weight_map"].erase("lm_head.weight"); });
                },
                {kIndex, "has no tensor \"lm_head.weight\""}),
  };
}

std::vector<BadFolder> BadShardNames() {
  std::vector<BadFolder> cases;
  for (const std::string& name :
       {std::string("../model-2.safetensors"), std::string("/etc/passwd"),
        std::string("/tmp/x.safetensors"), std::string("a/b.safetensors"), std::string(""),
        std::string(".."), std::string(".hidden.safetensors"), std::string("config.json"),
        std::string("x\0.safetensors", 14), std::string(300, 'x') + ".safetensors"}) {
    cases.push_back(BadShards(
        absl::StrCat("shard name ", name),
        [name](const TestFolder& f) {
          f.EditJson(kIndex, [&](json& i) { i["weight_map"]["model.norm.weight"] = name; });
        },
        {kIndex, "weight_map puts \"model.norm.weight\" into", "file names of the same folder"}));
  }
  return cases;
}

// Returns a case in which config.json names another architecture than that of the weights. The
// sizes fit, but the tensors differ.
BadFolder BadFamily(std::string name, std::string architecture,
                    std::function<void(std::vector<TestTensor>&)> edit,
                    std::vector<std::string> says) {
  const auto spoil = [architecture, edit](const TestFolder& folder) {
    folder.EditJson("config.json", [&](json& c) {
      c["architectures"] = {architecture};
      c["head_dim"] = 2;
    });
    auto tensors = TinyTensors();
    edit(tensors);
    folder.Write(kWeights, SafetensorsBytes(tensors));
  };
  says.push_back("/model.safetensors: ");
  return {std::move(name), spoil, std::move(says)};
}

std::vector<BadFolder> BadFamilies() {
  using Tensors = std::vector<TestTensor>&;
  const auto add_to_layers = [](Tensors tensors, const std::string& name, std::vector<int> shape) {
    for (const char* layer : {"0.", "1."}) {
      tensors.push_back({absl::StrCat("model.layers.", layer, name), "F32", shape});
    }
  };
  const auto fuse_qkv = [=](Tensors tensors, int rows) {
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                                 [](const TestTensor& tensor) {
                                   return absl::StrContains(tensor.name, "q_proj") ||
                                          absl::StrContains(tensor.name, "k_proj") ||
                                          absl::StrContains(tensor.name, "v_proj");
                                 }),
                  tensors.end());
    add_to_layers(tensors, "self_attn.qkv_proj.weight", {rows, 4});
  };
  return {
      BadFamily("Mistral with biases", "MistralForCausalLM",
                [=](Tensors t) { add_to_layers(t, "self_attn.q_proj.bias", {4}); },
                {"has tensor \"model.layers.",
                 "self_attn.q_proj.bias\"; expected none of that name", "in MistralForCausalLM"}),
      BadFamily("Qwen2 without biases", "Qwen2ForCausalLM", [](Tensors) {},
                {"has no tensor \"model.layers.0.self_attn.q_proj.bias\"; expected one of shape "
                 "[4]"}),
      BadFamily("Qwen2 with half of the biases", "Qwen2ForCausalLM",
                [=](Tensors t) { add_to_layers(t, "self_attn.q_proj.bias", {4}); },
                {"has no tensor \"model.layers.0.self_attn.k_proj.bias\"; expected one of shape "
                 "[2]"}),
      BadFamily("Qwen3 without norms of heads", "Qwen3ForCausalLM", [](Tensors) {},
                {"has no tensor \"model.layers.0.self_attn.q_norm.weight\"; expected one of shape "
                 "[2]"}),
      BadFamily("Qwen3 with a norm of all heads", "Qwen3ForCausalLM",
                [=](Tensors t) { add_to_layers(t, "self_attn.q_norm.weight", {4}); },
                {"q_norm.weight\" has shape [4]; expected [2] by config.json"}),
      BadFamily("Llama with norms of heads", "LlamaForCausalLM",
                [=](Tensors t) { add_to_layers(t, "self_attn.q_norm.weight", {2}); },
                {"q_norm.weight\"; expected none of that name in LlamaForCausalLM"}),
      BadFamily(
          "Phi-3 with projections apart", "Phi3ForCausalLM", [](Tensors) {},
          {"has no tensor \"model.layers.0.self_attn.qkv_proj.weight\"; expected one of shape "
           "[8, 4]"}),
      BadFamily("Phi-3 with a projection of too few rows", "Phi3ForCausalLM",
                [=](Tensors t) { fuse_qkv(t, 6); },
                {"qkv_proj.weight\" has shape [6, 4]; expected [8, 4] by config.json"}),
      BadFamily("Phi-3 with gate and up apart", "Phi3ForCausalLM",
                [=](Tensors t) { fuse_qkv(t, 8); },
                {"has no tensor \"model.layers.0.mlp.gate_up_proj.weight\"; expected one of shape "
                 "[12, 4]"}),
  };
}

BadFolder BadJson(std::string name, const char* file, std::string text, std::string says) {
  return {std::move(name),
          [=](const TestFolder& folder) { folder.Write(file, text); },
          {absl::StrCat("/", file, ": "), std::move(says)}};
}

// Returns damaged configuration files. The allowed values of each key are tested in
// model_config_test.cc.
std::vector<BadFolder> BadConfigs() {
  return {
      BadJson("config empty", "config.json", "", "is not valid JSON (0 bytes)"),
      BadJson("config cut short", "config.json", TinyConfig().dump().substr(0, 90),
              "is not valid JSON (90 bytes)"),
      BadJson("config a list", "config.json", "[]", "is []; expected a JSON object"),
      BadJson("config of nothing", "config.json", "{}", "architectures is missing; expected"),
      BadJson("config of another kind of model", "config.json",
              "{\"architectures\":[\"BertModel\"]}", "expected one of LlamaForCausalLM"),
      BadJson("config without sizes", "config.json", "{\"architectures\":[\"Qwen3ForCausalLM\"]}",
              "num_hidden_layers is missing"),
      {"config missing",
       [](const TestFolder& folder) { folder.Remove("config.json"); },
       {"has no config.json; give a Hugging Face folder with"}},
      {"config a folder",
       [](const TestFolder& folder) {
         folder.Remove("config.json");
         std::filesystem::create_directory(folder.File("config.json"));
       },
       {"/config.json: not a regular file"}},
  };
}

TEST(BadFolderTest, IsRefusedWithFileTensorFoundAndExpected) {
  std::vector<BadFolder> cases = BadFiles();
  for (auto& more : {BadModels(), BadShardNames(), BadFamilies(), BadConfigs()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const BadFolder& bad : cases) {
    TestFolder folder;
    WriteTinyModel(folder);
    bad.spoil(folder);
    const auto status = Load(folder);
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status))
        << bad.name << ": " << status;
    for (const std::string& says : bad.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(says)) << bad.name;
    }
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << bad.name;
    // If the configuration and the tensor tables can be read, CheckTensors must find the same fault
    // without reading weights.
    const auto config = ReadModelConfig(folder.path());
    const auto checkpoint = Checkpoint::Open(folder.path());
    if (config.ok() && checkpoint.ok()) {
      EXPECT_EQ(Model::CheckTensors(*config, *checkpoint), status) << bad.name;
    }
  }
  EXPECT_GE(cases.size(), 99u);
}

TEST(BadFolderTest, EveryShorterFileIsRefused) {
  TestFolder folder;
  WriteTinyModel(folder);
  const std::string whole = folder.Read(kWeights);
  ASSERT_TRUE(Load(folder).ok()) << Load(folder);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    folder.Write(kWeights, absl::string_view(whole).substr(0, bytes));
    const auto file = SafetensorsFile::Open(folder.File(kWeights));
    ASSERT_TRUE(absl::IsInvalidArgument(file.status())) << bytes << ": " << file.status();
  }
}

TEST(BadFolderTest, FlippedHeaderBytesAreRefusedOrHarmless) {
  TestFolder folder;
  WriteTinyModel(folder);
  const std::string whole = folder.Read(kWeights);
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(whole[i]);
  }
  std::mt19937_64 random(20240607);
  // Three of four wrong bytes are sampled from these characters, which often leave the JSON valid.
  // So the checks after the JSON parser are tested too.
  constexpr absl::string_view kAlive = "0123456789[],{}\":-.eF BX_";
  int harmless = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole;
    for (int flips = 1 + random() % 3; flips > 0; --flips) {
      char& byte = bytes[random() % (8 + header_bytes)];
      byte = random() % 4 == 0 ? static_cast<char>(random()) : kAlive[random() % kAlive.size()];
    }
    folder.Write(kWeights, bytes);
    const auto status = Load(folder);
    if (status.ok()) {
      ++harmless;
      EXPECT_EQ(TinyLogits(folder.path()).size(), 5u);
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << round << ": " << status;
      ASSERT_THAT(std::string(status.message()), HasSubstr("/model.safetensors: ")) << round;
    }
  }
  EXPECT_LT(harmless, kRounds / 4);
}

TEST(BadFolderTest, FlippedConfigBytesAreRefusedOrHarmless) {
  TestFolder folder;
  WriteTinyModel(folder);
  const std::string whole = folder.Read("config.json");
  std::mt19937_64 random(20240608);
  constexpr absl::string_view kAlive = "0123456789[],{}\":-.eE_ n";
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole;
    for (int flips = 1 + random() % 3; flips > 0; --flips) {
      text[random() % text.size()] =
          random() % 4 == 0 ? static_cast<char>(random()) : kAlive[random() % kAlive.size()];
    }
    folder.Write("config.json", text);
    const auto status = Load(folder);
    ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << round << ": " << status;
  }
}

}  // namespace
}  // namespace baton
