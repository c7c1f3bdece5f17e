#include "common/model/odd_tensors.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "common/model/reference_backend.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// A folder of the tiny model with other tensors or another configuration.
class OddTensorsTest : public testing::Test {
 protected:
  OddTensorsTest() { WriteTinyModel(folder_); }

  void Set(const std::string& key, const json& value) {
    folder_.EditJson("config.json", [&](json& config) { config[key] = value; });
  }
  void Write(const std::vector<TestTensor>& tensors) {
    folder_.Write(kWeightsFile, SafetensorsBytes(tensors));
  }
  // Writes the tiny model's tensors and one more, filled with `bytes`.
  void WriteWith(const TestTensor& more, const std::string& bytes) {
    auto tensors = TinyTensors();
    tensors.push_back(more);
    Write(tensors);
    Overwrite(more.name, bytes);
  }
  // Overwrites the data of a tensor.
  void Overwrite(const std::string& name, const std::string& bytes) {
    const auto checkpoint = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const WeightTensor& entry = checkpoint->tensors().at(name);
    ASSERT_EQ(entry.bytes, bytes.size());
    std::string file = folder_.Read(kWeightsFile);
    file.replace(entry.offset, bytes.size(), bytes);
    folder_.Write(kWeightsFile, file);
  }
  std::string BytesOf(const std::string& name) {
    const auto checkpoint = Checkpoint::Open(folder_.path());
    const WeightTensor& entry = checkpoint->tensors().at(name);
    return folder_.Read(kWeightsFile).substr(entry.offset, entry.bytes);
  }
  std::vector<std::string> Warnings() {
    const auto opened = ModelFolder::Open(folder_.path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? opened->warnings : std::vector<std::string>{"not opened"};
  }

  // Compares the logits of the folder with those of transformers. If BATON_ODD_FOLDERS is set, also
  // copies the folder there, for testdata/make_odd_goldens.py.
  void ExpectReference(const std::string& name) {
    if (const char* const folders = std::getenv("BATON_ODD_FOLDERS")) {
      std::filesystem::copy(folder_.path(), absl::StrCat(folders, "/", name));
    }
    std::ifstream file(TestData("odd_goldens.json"));
    const json goldens = json::parse(file, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(goldens.is_object() && goldens["logits"].contains(name)) << "no golden of " << name;
    EXPECT_THAT(TinyLogits(folder_.path()),
                testing::Pointwise(testing::FloatNear(1e-5f),
                                   goldens["logits"][name].get<std::vector<float>>()));
  }

  const TestFolder folder_;
};

std::string Floats(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST_F(OddTensorsTest, ATiedModelWithAHeadOfItsOwnUsesThatHead) {
  const std::vector<float> apart = TinyLogits(folder_.path());
  Set("tie_word_embeddings", true);
  EXPECT_THAT(Warnings(),
              ElementsAre(AllOf(HasSubstr("/model.safetensors: config.json ties "
                                          "\"lm_head.weight\" to \"model.embed_tokens.weight\""),
                                HasSubstr("with different values: the model uses both"))));
  EXPECT_EQ(TinyLogits(folder_.path()), apart);
  ExpectReference("head_of_its_own");
}

TEST_F(OddTensorsTest, TheFingerprintCoversAHeadOfItsOwn) {
  Set("tie_word_embeddings", true);
  const auto fingerprint = [&] {
    ReferenceBackend backend;
    return (*Model::Load(folder_.path(), &backend))->fingerprint();
  };
  const std::string one = fingerprint();
  std::string head = BytesOf(kHead);
  head[5] ^= 1;
  Overwrite(kHead, head);
  EXPECT_NE(fingerprint(), one);
}

TEST_F(OddTensorsTest, ACopyOfTheEmbeddingIsNotLoaded) {
  Set("tie_word_embeddings", true);
  Overwrite(kHead, BytesOf(kEmbedding));
  EXPECT_THAT(Warnings(), IsEmpty());
  const std::vector<float> with_copy = TinyLogits(folder_.path());
  ExpectReference("copy_of_the_embedding");
  auto tensors = TinyTensors();
  std::erase_if(tensors, [](const TestTensor& tensor) { return tensor.name == kHead; });
  Write(tensors);
  EXPECT_EQ(TinyLogits(folder_.path()), with_copy);
}

TEST_F(OddTensorsTest, ATiedMatrixMayHaveOnlyTheNameOfTheHead) {
  Set("tie_word_embeddings", true);
  Overwrite(kHead, BytesOf(kEmbedding));
  const std::vector<float> tied = TinyLogits(folder_.path());
  const std::string matrix = BytesOf(kEmbedding);
  auto tensors = TinyTensors();
  std::erase_if(tensors, [](const TestTensor& tensor) { return tensor.name == kEmbedding; });
  Write(tensors);
  Overwrite(kHead, matrix);
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("has no \"model.embed_tokens.weight\", which "
                                                "config.json ties to \"lm_head.weight\"")));
  EXPECT_EQ(TinyLogits(folder_.path()), tied);
  ExpectReference("head_alone");

  // Without the tie, it is missing.
  Set("tie_word_embeddings", false);
  EXPECT_THAT(std::string(ModelFolder::Open(folder_.path()).status().message()),
              HasSubstr("has no tensor \"model.embed_tokens.weight\""));
}

TEST_F(OddTensorsTest, RotaryFrequenciesAreCompared) {
  const std::vector<float> without = TinyLogits(folder_.path());
  const TestTensor frequencies = {"model.layers.1.self_attn.rotary_emb.inv_freq", "F32", {1}};
  WriteWith(frequencies, Floats({1.0f}));
  EXPECT_THAT(Warnings(), IsEmpty());
  EXPECT_EQ(TinyLogits(folder_.path()), without);
  for (const auto& other : {Floats({0.5f}), Floats({1.01f}), Floats({NAN})}) {
    Overwrite(frequencies.name, other);
    EXPECT_THAT(Warnings(), ElementsAre(AllOf(
                                HasSubstr("\"model.layers.1.self_attn.rotary_emb.inv_freq\""),
                                HasSubstr("differ from those of config.json; the model uses those "
                                          "of config.json"))));
    EXPECT_EQ(TinyLogits(folder_.path()), without);
  }
  Overwrite(frequencies.name, Floats({0.5f}));
  ExpectReference("other_frequencies");
  WriteWith({frequencies.name, "BF16", {1}}, std::string("\x80\x3f", 2));  // 1 in bf16
  EXPECT_THAT(Warnings(), IsEmpty());
  WriteWith({frequencies.name, "F32", {2}}, Floats({1.0f, 1.0f}));
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("differ from those of config.json")));
}

TEST_F(OddTensorsTest, TensorsThatTransformersDoesNotUseAreNamed) {
  const std::vector<float> plain = TinyLogits(folder_.path());
  auto tensors = TinyTensors();
  tensors.push_back({"v_head.summary.bias", "F32", {1}});
  tensors.push_back({"v_head.summary.weight", "F32", {1, 4}});
  tensors.push_back({"model.layers.2.self_attn.q_proj.weight", "F32", {4, 4}});
  tensors.push_back({"model.layers.10.mlp.anything", "F16", {3}});
  Write(tensors);
  EXPECT_THAT(Warnings(),
              ElementsAre(HasSubstr("2 tensors are not used, \"v_head.summary.bias\" and others: a "
                                    "value head"),
                          HasSubstr("2 tensors are not used, \"model.layers.10.mlp.anything\" and "
                                    "others: layers beyond the 2 of config.json")));
  EXPECT_EQ(TinyLogits(folder_.path()), plain);
  ExpectReference("unused_tensors");
  // Layer 2 is used if config.json has three layers. Its other tensors are missing.
  Set("num_hidden_layers", 3);
  EXPECT_THAT(std::string(ModelFolder::Open(folder_.path()).status().message()),
              HasSubstr("has no tensor \"model.layers.2."));
}

TEST_F(OddTensorsTest, BiasesOfZerosAreLeftOutAndOthersRefused) {
  const std::vector<float> plain = TinyLogits(folder_.path());
  const TestTensor bias = {"model.layers.0.self_attn.q_proj.bias", "F32", {4}};
  WriteWith(bias, Floats({0, -0.0f, 0, 0}));
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("1 tensor is not used, "
                                                "\"model.layers.0.self_attn.q_proj.bias\": biases "
                                                "that LlamaForCausalLM does not have")));
  EXPECT_EQ(TinyLogits(folder_.path()), plain);
  ExpectReference("zero_biases");
  Overwrite(bias.name, Floats({0, 0, 0, 1e-30f}));
  EXPECT_THAT(std::string(ModelFolder::Open(folder_.path()).status().message()),
              AllOf(HasSubstr("has tensor \"model.layers.0.self_attn.q_proj.bias\""),
                    HasSubstr("no attention_bias")));
  // An architecture that has biases needs all of them, zeros or not.
  Set("attention_bias", true);
  EXPECT_THAT(std::string(ModelFolder::Open(folder_.path()).status().message()),
              HasSubstr("has no tensor \"model.layers.0.self_attn.k_proj.bias\""));
}

TEST_F(OddTensorsTest, EmptyRopeScalingIsNone) {
  ExpectReference("plain");
  Set("rope_scaling", json::object());
  ExpectReference("empty_rope_scaling");
}

TEST_F(OddTensorsTest, AFileThatWasCutShortIsAnErrorAndNoCrash) {
  Set("tie_word_embeddings", true);
  auto checkpoint = Checkpoint::Open(folder_.path());
  auto config = ReadModelConfig(folder_.path());
  ASSERT_TRUE(checkpoint.ok() && config.ok());
  std::filesystem::resize_file(folder_.File(kWeightsFile), 100);
  std::vector<std::string> warnings;
  EXPECT_TRUE(absl::IsDataLoss(SettleOddTensors(&*config, &*checkpoint, &warnings)));
}

}  // namespace
}  // namespace baton
