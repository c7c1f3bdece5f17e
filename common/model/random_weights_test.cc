#include "common/model/random_weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/forward_pass.h"
#include "common/model/reference_backend.h"
#include "common/model/test_folder.h"

namespace baton {
namespace {

float Value(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

std::vector<uint16_t> All(const RandomWeights& random, const TensorShape& tensor) {
  std::vector<uint16_t> values(tensor.elements());
  random.Fill(tensor, 0, absl::MakeSpan(values));
  return values;
}

// Returns mean and standard deviation of a tensor's values.
std::pair<double, double> MeanAndDeviation(const std::vector<uint16_t>& values) {
  double sum = 0, squares = 0;
  for (const uint16_t value : values) sum += Value(value);
  const double mean = sum / values.size();
  for (const uint16_t value : values) squares += std::pow(Value(value) - mean, 2);
  return {mean, std::sqrt(squares / values.size())};
}

TEST(RandomWeightsTest, AreScaledSoThatActivationsStayOfOneSize) {
  const RandomWeights random(7);
  const auto matrix = MeanAndDeviation(All(random, {"a", TensorShape::Kind::kMatrix, 300, 400}));
  EXPECT_NEAR(matrix.first, 0, 0.001);
  EXPECT_NEAR(matrix.second, 1 / std::sqrt(400.0), 0.001);
  const auto norm = MeanAndDeviation(All(random, {"b", TensorShape::Kind::kNorm, 1, 40000}));
  EXPECT_NEAR(norm.first, 1, 0.005);
  EXPECT_NEAR(norm.second, 0.25 / std::sqrt(3.0), 0.005);
  const auto bias = MeanAndDeviation(All(random, {"c", TensorShape::Kind::kBias, 1, 40000}));
  EXPECT_NEAR(bias.first, 0, 0.005);
  EXPECT_NEAR(bias.second, 0.125 / std::sqrt(3.0), 0.005);
}

// The expected values were computed by another program. Every compiler and machine must give these
// values.
TEST(RandomWeightsTest, AreTheSameOnEveryMachine) {
  std::vector<uint16_t> values(5);
  const RandomWeights random(1);
  random.Fill({"model.layers.0.mlp.up_proj.weight", TensorShape::Kind::kMatrix, 8, 768}, 1000,
              absl::MakeSpan(values));
  EXPECT_THAT(values, testing::ElementsAre(15638, 15321, 48226, 48451, 15188));
  random.Fill({"model.norm.weight", TensorShape::Kind::kNorm, 1, 768}, 0, absl::MakeSpan(values));
  EXPECT_THAT(values, testing::ElementsAre(16275, 16215, 16245, 16232, 16210));
}

TEST(RandomWeightsTest, PiecesAreThoseOfTheWhole) {
  const RandomWeights random(3);
  const TensorShape tensor = {"x", TensorShape::Kind::kMatrix, 50, 101};
  const std::vector<uint16_t> whole = All(random, tensor);
  for (const auto& [first, count] : std::vector<std::pair<int, int>>{
           {0, 1}, {1, 1}, {3, 2}, {2, 1025}, {1021, 2000}, {5049, 1}}) {
    std::vector<uint16_t> piece(count);
    random.Fill(tensor, first, absl::MakeSpan(piece));
    EXPECT_EQ(piece, std::vector<uint16_t>(whole.begin() + first, whole.begin() + first + count))
        << first;
  }
}

TEST(RandomWeightsTest, SeedAndNameMakeOthers) {
  const TensorShape x = {"x", TensorShape::Kind::kMatrix, 50, 100};
  TensorShape y = x;
  y.name = "y";
  const auto same = [&](const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
    int same = 0;
    for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
    return same;
  };
  const std::vector<uint16_t> first = All(RandomWeights(1), x);
  EXPECT_LT(same(first, All(RandomWeights(2), x)), 50);
  EXPECT_LT(same(first, All(RandomWeights(1), y)), 50);
}

// A backend that copies weights in LoadWeight, as a device does, and does not keep their host
// addresses.
class CopyingBackend : public ReferenceBackend {
 public:
  bool copies_weights() const override { return true; }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    const size_t bytes = RowBytes(host.format, int64_t{1} * host.rows * host.cols);
    copies_.push_back(std::make_unique<std::byte[]>(bytes));
    std::memcpy(copies_.back().get(), host.data, bytes);
    Matrix copy = host;
    copy.data = copies_.back().get();
    return copy;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

absl::Span<const uint16_t> Values(const Matrix& matrix) {
  return {static_cast<const uint16_t*>(matrix.data), size_t{1} * matrix.rows * matrix.cols};
}

class RandomModelTest : public testing::TestWithParam<const char*> {};

// Checks for every family that all weights exist and that one step's logits are finite and of a
// reasonable size.
TEST_P(RandomModelTest, RunsOnAnyBackend) {
  const ModelConfig config = ReadModelConfig(TestData(GetParam())).value();
  ReferenceBackend backend;
  CopyingBackend copying;
  const auto model = Model::WithRandomWeights(config, 5, &backend).value();
  const auto copied = Model::WithRandomWeights(config, 5, &copying).value();
  EXPECT_EQ(model->fingerprint(), copied->fingerprint());
  EXPECT_EQ(model->weight_type(), DType::kBF16);
  size_t elements = 0;
  for (const TensorShape& tensor : Model::TensorsOf(config)) elements += tensor.elements();
  EXPECT_EQ(model->weight_bytes(), 2 * elements);
  EXPECT_EQ(model->head().data == model->embedding().data, config.tied_embeddings);

  std::vector<float> logits[2];
  for (const bool copy : {false, true}) {
    Backend* const host = copy ? &copying : &backend;
    const auto pass = ForwardPass::Create(copy ? copied.get() : model.get(), host, 8).value();
    const KvLayout layout = model->LayoutFor(8, DType::kF32);
    std::vector<std::byte> pool(layout.BlockBytes());
    const TokenId tokens[] = {4, 0, 3, 7, 2};
    const BlockId blocks[] = {0};
    const int rows[] = {4};
    const SequenceRows sequence{.rows = 5, .blocks = blocks};
    logits[copy].resize(config.vocab);
    ASSERT_TRUE(pass->Run({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = rows},
                          {pool.data(), layout}, absl::MakeSpan(logits[copy]))
                    .ok());
  }
  EXPECT_EQ(logits[0], logits[1]);
  double squares = 0;
  for (const float logit : logits[0]) squares += double{logit} * logit;
  const double size = std::sqrt(squares / logits[0].size());
  EXPECT_GT(size, 0.3);
  EXPECT_LT(size, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, RandomModelTest,
                         testing::Values("gqa_bias_bf16", "mha_tied_f16", "mistral_window_f32",
                                         "qwen2_yarn_tied_bf16", "qwen3_f32", "phi3_long_bf16"),
                         [](const auto& info) { return info.param; });

TEST(RandomModelTest, FusedTensorsAreCutByRows) {
  const ModelConfig config = ReadModelConfig(TestData("phi3_long_bf16")).value();
  ReferenceBackend backend;
  const auto model = Model::WithRandomWeights(config, 5, &backend).value();
  for (const TensorShape& tensor : Model::TensorsOf(config)) {
    if (!absl::StrContains(tensor.name, "layers.1.self_attn.qkv_proj")) continue;
    const LayerWeights& layer = model->layer(1);
    EXPECT_THAT(tensor.weight_rows, testing::ElementsAre(layer.q.rows, layer.k.rows, layer.v.rows));
    std::vector<uint16_t> expected = All(RandomWeights(5), tensor), found;
    for (const Matrix* part : {&layer.q, &layer.k, &layer.v}) {
      const auto values = Values(*part);
      found.insert(found.end(), values.begin(), values.end());
    }
    EXPECT_EQ(found, expected);
    return;
  }
  FAIL() << "no fused tensor";
}

TEST(RandomModelTest, FingerprintIsOfConfigurationAndSeed) {
  ReferenceBackend backend;
  const auto of = [&](const char* folder, uint64_t seed) {
    return Model::WithRandomWeights(ReadModelConfig(TestData(folder)).value(), seed, &backend)
        .value()
        ->fingerprint();
  };
  EXPECT_EQ(of("gqa_f32", 1), of("gqa_f32", 1));
  EXPECT_NE(of("gqa_f32", 1), of("gqa_f32", 2));
  EXPECT_NE(of("gqa_f32", 1), of("qwen3_f32", 1));
  EXPECT_NE(of("gqa_f32", 1), Model::Load(TestData("gqa_f32"), &backend).value()->fingerprint());
}

}  // namespace
}  // namespace baton
