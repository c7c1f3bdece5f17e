#include "common/model/model.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "common/model/forward_pass.h"
#include "common/model/reference_backend.h"
#include "common/model/source/checkpoint.h"
#include "common/model/source/mapped_file.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kWeightFile[] = "model.safetensors";

absl::Status LoadFolder(const TestFolder& folder) {
  ReferenceBackend backend;
  return Model::Load(folder.path(), &backend).status();
}

std::string FingerprintOf(const std::string& folder) {
  ReferenceBackend backend;
  const auto model = Model::Load(folder, &backend);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->fingerprint() : "";
}

TEST(ModelTest, TellsItsWeightsAndLayout) {
  ReferenceBackend backend;
  const auto loaded = Model::Load(TestData("gqa_bias_bf16"), &backend);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Model& model = **loaded;
  EXPECT_EQ(model.weight_type(), DType::kBF16);  // the norms and biases of this model are f32
  EXPECT_EQ(model.final_norm().format, WeightFormat::kF32);
  EXPECT_EQ(model.layer(2).q_bias.format, WeightFormat::kF32);
  EXPECT_EQ(model.embedding().format, WeightFormat::kBF16);
  EXPECT_NE(model.head().data, model.embedding().data);
  EXPECT_EQ(model.layer(0).k.rows, 2 * 16);
  EXPECT_EQ(model.layer(0).k.cols, 64);
  EXPECT_EQ(model.LayoutFor(16, DType::kF16).Fingerprint(),
            "block.layer.kv.head.token.dim/3x2x2x16x16/f16");
  const size_t matrices = 120 * 64 * 2 + 3 * (64 * 128 * 2 + 64 * 32 * 2 + 64 * 96 * 3);
  const size_t vectors = 64 + 3 * (64 * 4 + 128 + 32 * 2 + 96 * 2);
  EXPECT_EQ(model.weight_bytes(), matrices * 2 + vectors * 4);
}

TEST(ModelTest, TypeOfTheMatricesIsKnownBeforeTheModelIsLoaded) {
  ReferenceBackend backend;
  for (const char* name : {"gqa_bias_bf16", "gqa_f32", "llama3_sharded_bf16", "mha_tied_f16"}) {
    const auto checkpoint = Checkpoint::Open(TestData(name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->MatrixFormat(),
              FormatOf((*Model::Load(TestData(name), &backend))->weight_type()));
  }
}

TEST(ModelTest, MappedWeightsAreReadOnceAndAFileCutShortMeanwhileIsAnError) {
  TestFolder folder;
  WriteTinyModel(folder);
  ShardTinyModel(folder);
  ReferenceBackend backend;
  const auto model = Model::Load(folder.path(), &backend);
  ASSERT_TRUE(model.ok()) << model.status();
  uint64_t done = 0, total = 0;
  const absl::Status read = (*model)->PageIn([&](uint64_t bytes, uint64_t of) {
    EXPECT_GE(bytes, done);
    done = bytes;
    total = of;
  });
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(total, (*model)->weight_bytes());
  EXPECT_EQ(done, total);
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().extension() == ".safetensors") {
      std::filesystem::resize_file(file.path(), file.file_size() - 1);
    }
  }
  const absl::Status cut = (*model)->PageIn();
  EXPECT_EQ(cut.code(), absl::StatusCode::kFailedPrecondition) << cut;
  EXPECT_TRUE(Model::WithoutWeights((*model)->config())->PageIn().ok());
}

TEST(ModelTest, WeightsInAFileSystemOfMemoryAreToldFromOthers) {
  struct statfs info;
  if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC) {
    GTEST_SKIP() << "/dev/shm is no tmpfs here";
  }
  const ScratchFolder memory("/dev/shm");
  std::filesystem::copy(TestData("gqa_bias_bf16"), memory.path());
  ReferenceBackend backend;
  const auto model = Model::Load(memory.path(), &backend);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weight_bytes_in_memory(), (*model)->weight_bytes());
  if (statfs(BATON_SOURCE_DIR, &info) == 0 && info.f_type != TMPFS_MAGIC) {
    EXPECT_EQ((*Model::Load(TestData("gqa_bias_bf16"), &backend))->weight_bytes_in_memory(), 0u);
  }
}

TEST(ModelTest, TiedHeadIsTheEmbedding) {
  ReferenceBackend backend;
  const auto model = Model::Load(TestData("mha_tied_f16"), &backend);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->head().data, (*model)->embedding().data);
  EXPECT_EQ((*model)->weight_type(), DType::kF16);
}

TEST(ModelTest, WithoutWeightsHasSizesAndNoData) {
  const auto config = ReadModelConfig(TestData("gqa_bias_bf16"));
  ASSERT_TRUE(config.ok());
  const auto model = Model::WithoutWeights(*config);
  EXPECT_EQ(model->layer(2).gate.rows, 96);
  EXPECT_EQ(model->layer(2).gate.data, nullptr);
  EXPECT_EQ(model->head().rows, 120);
  EXPECT_EQ(model->weight_bytes(), 0u);
  EXPECT_NE(model->fingerprint(), FingerprintOf(TestData("gqa_bias_bf16")));
  EXPECT_EQ(model->fingerprint(), Model::WithoutWeights(*config)->fingerprint());
}

TEST(ModelTest, FingerprintIsOfConfigurationAndWeightsAndNotOfPlace) {
  TestFolder a, b;
  WriteTinyModel(a);
  WriteTinyModel(b);
  const std::string original = FingerprintOf(a.path());
  EXPECT_EQ(FingerprintOf(b.path()), original);
  ShardTinyModel(b);
  EXPECT_EQ(FingerprintOf(b.path()), original);
  a.EditJson("config.json", [](json& config) { config["transformers_version"] = "9"; });
  EXPECT_EQ(FingerprintOf(a.path()), original);

  for (const auto& change : {json{{"rms_norm_eps", 1e-6}}, json{{"max_position_embeddings", 63}},
                             json{{"vocab_size", 5}}}) {
    WriteTinyModel(a);
    a.EditJson("config.json", [&](json& config) { config.merge_patch(change); });
    EXPECT_EQ(FingerprintOf(a.path()) == original, change.contains("vocab_size")) << change;
  }
  WriteTinyModel(a);
  std::string weights = a.Read(kWeightFile);
  weights.back() ^= 1;
  a.Write(kWeightFile, weights);
  EXPECT_NE(FingerprintOf(a.path()), original);
}

TEST(ModelTest, ElementTypesMayMix) {
  TestFolder folder;
  WriteTinyModel(folder);
  const auto expected = TinyLogits(folder.path());
  for (const char* matrices : {"F32", "F16", "BF16"}) {
    for (const char* vectors : {"F32", "F16", "BF16"}) {
      folder.Write(kWeightFile, SafetensorsBytes(TinyTensors(matrices, vectors)));
      EXPECT_EQ(TinyLogits(folder.path()), expected) << matrices << " " << vectors;
    }
  }
  auto mixed = TinyTensors("BF16");
  mixed.back().dtype = "F16";
  folder.Write(kWeightFile, SafetensorsBytes(mixed));
  EXPECT_EQ(TinyLogits(folder.path()), expected);
  ReferenceBackend backend;
  EXPECT_EQ((*Model::Load(folder.path(), &backend))->weight_type(), DType::kF32);
  EXPECT_EQ(Checkpoint::Open(folder.path())->MatrixFormat(), WeightFormat::kF32);
}

TEST(ModelTest, DataAtAnyAlignment) {
  TestFolder folder;
  WriteTinyModel(folder);
  const auto expected = TinyLogits(folder.path());
  for (const int padding : {1, 2, 3}) {
    folder.Write(kWeightFile, SafetensorsBytes(TinyTensors(), padding));
    EXPECT_EQ(TinyLogits(folder.path()), expected);
  }
}

TEST(ModelTest, TensorsThatFollowFromTheRestAreIgnored) {
  TestFolder folder;
  WriteTinyModel(folder);
  auto tensors = TinyTensors();
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}});
  folder.Write(kWeightFile, SafetensorsBytes(tensors));
  EXPECT_TRUE(LoadFolder(folder).ok()) << LoadFolder(folder);
  folder.EditJson("config.json", [](json& config) { config["tie_word_embeddings"] = true; });
  // The checkpoint has lm_head.weight, which tied embeddings do not need.
  EXPECT_TRUE(LoadFolder(folder).ok()) << LoadFolder(folder);
}

TEST(ModelTest, FileChangedAfterOpeningIsNoticed) {
  TestFolder folder;
  WriteTinyModel(folder);
  const auto file = MappedFile::Open(folder.File(kWeightFile));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
  char byte;
  const uint64_t last = folder.Read(kWeightFile).size() - 1;
  EXPECT_TRUE((*file)->Read(last, &byte, 1).ok());
  std::filesystem::resize_file(folder.File(kWeightFile), last);
  EXPECT_EQ((*file)->Read(last, &byte, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->CheckUnchanged().code(), absl::StatusCode::kFailedPrecondition);
}

class ForwardPassArgumentsTest : public testing::Test {
 protected:
  ForwardPassArgumentsTest() {
    WriteTinyModel(folder_);
    model_ = *Model::Load(folder_.path(), &backend_);
    pass_ = *ForwardPass::Create(model_.get(), &backend_, 8);
    layout_ = model_->LayoutFor(4, DType::kF32);
    pool_.resize(4 * layout_.BlockBytes());
  }

  std::string Run(std::vector<TokenId> tokens, std::vector<SequenceRows> sequences,
                  std::vector<int> rows = {}, int logits = -1) {
    std::vector<float> out(logits < 0 ? rows.size() * 5 : logits);
    const auto status = pass_->Run({.tokens = tokens, .sequences = sequences, .logit_rows = rows},
                                   {.data = pool_.data(), .layout = layout_}, absl::MakeSpan(out));
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  TestFolder folder_;
  ReferenceBackend backend_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<ForwardPass> pass_;
  KvLayout layout_;
  std::vector<std::byte> pool_;
};

TEST_F(ForwardPassArgumentsTest, WhatDoesNotFitIsRefused) {
  const BlockId blocks[] = {2, 0};
  const BlockId negative[] = {2, -1};
  const SequenceRows two{.rows = 2, .blocks = blocks};
  EXPECT_EQ(Run({1, 2}, {two}, {1}), "");
  EXPECT_THAT(Run({}, {}), HasSubstr("a step of 0 rows; expected 1 to 8"));
  EXPECT_THAT(Run({1, 1, 1, 1, 1, 1, 1, 1, 1}, {{.rows = 9, .blocks = blocks}}),
              HasSubstr("a step of 9 rows"));
  EXPECT_THAT(Run({1, 5}, {two}), HasSubstr("row 1 has token 5; the vocabulary has 5"));
  EXPECT_THAT(Run({-1, 2}, {two}), HasSubstr("row 0 has token -1"));
  EXPECT_THAT(Run({1, 2, 3}, {two}), HasSubstr("sequences have 2 rows; there are 3 tokens"));
  EXPECT_THAT(Run({1}, {two}), HasSubstr("sequence 0 has 2 rows from row 0"));
  EXPECT_THAT(Run({1, 2}, {}), HasSubstr("sequences have 0 rows"));
  EXPECT_THAT(Run({1, 2}, {{.first_row = 1, .rows = 1, .blocks = blocks}}),
              HasSubstr("sequence 0 has 1 rows from row 1; expected some from row 0"));
  EXPECT_THAT(Run({1, 2}, {two, {.first_row = 2, .rows = 0, .blocks = blocks}}),
              HasSubstr("sequence 1 has 0 rows"));
  EXPECT_THAT(Run({1, 2}, {{.rows = 2, .first_position = -1, .blocks = blocks}}),
              HasSubstr("positions -1 to 0"));
  EXPECT_THAT(Run({1, 2}, {{.rows = 2, .first_position = 7, .blocks = blocks}}),
              HasSubstr("sequence 0 has 2 blocks of 4 tokens; its last position is 8"));
  EXPECT_THAT(Run({1, 2}, {{.rows = 2, .first_position = 63, .blocks = blocks}}),
              HasSubstr("positions 63 to 64; the context has 64"));
  EXPECT_THAT(Run({1, 2}, {{.rows = 2, .blocks = negative}}), HasSubstr("sequence 0 has block -1"));
  EXPECT_THAT(Run({1, 2}, {two}, {2}), HasSubstr("logits of row 2 wanted; there are 2"));
  EXPECT_THAT(Run({1, 2}, {two}, {-1}), HasSubstr("logits of row -1 wanted"));
  EXPECT_THAT(Run({1, 2}, {two}, {1}, 4), HasSubstr("room for 4 logits; expected 1 rows of 5"));
  layout_.kv_heads = 2;
  EXPECT_THAT(Run({1, 2}, {two}),
              HasSubstr("expected block.layer.kv.head.token.dim/2x2x1x4x2/f32"));
}

TEST_F(ForwardPassArgumentsTest, StepsHaveAtLeastOneRow) {
  EXPECT_TRUE(absl::IsInvalidArgument(ForwardPass::Create(model_.get(), &backend_, 0).status()));
}

}  // namespace
}  // namespace baton
