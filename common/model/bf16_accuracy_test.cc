#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "common/model/test_folder.h"
#include "kernels/cpu/cpu_backend.h"

// Runs models with GEMMs and KV in bf16, and measures how far their logits are from those in
// float32. Compares this distance with that of transformers in bfloat16. The expected logits come
// from testdata/make_bf16_goldens.py. No seed was left out because of its result.
namespace baton {
namespace {

using nlohmann::json;

const json& Goldens() {
  static const auto& goldens = *new json(json::parse(
      std::ifstream(absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/bf16_goldens.json"))));
  return goldens;
}

// Returns number `i` of a SplitMix64 sequence (Steele et al. 2014) that starts at the FNV-1a hash
// of `stream`. make_bf16_goldens.py computes the same numbers.
uint64_t Sample(absl::string_view stream, uint64_t i) {
  uint64_t z = 0xcbf29ce484222325;
  for (const char byte : stream) z = (z ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  z += (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Writes the model of one seed as a folder. Each operation is exact or rounds a float once, so that
// C++ and Python make the same weights.
void WriteModel(const json& model, int seed, const TestFolder& folder) {
  json header;
  std::string data;
  for (const json& tensor : model["tensors"]) {
    const std::string name = tensor[0], type = tensor[1];
    const std::string stream = absl::StrCat(seed, "/", name);
    const float offset = tensor[3], scale = tensor[4];
    uint64_t elements = 1;
    for (const uint64_t size : tensor[2]) elements *= size;
    const size_t begin = data.size();
    for (uint64_t i = 0; i < elements; ++i) {
      const uint64_t z = Sample(stream, i);
      const int sum =
          static_cast<int>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
      const float noise = static_cast<float>(sum - 131070) * static_cast<float>(1.0 / 37837);
      const float value = noise * scale + offset;
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      if (type == "BF16") {  // rounds to nearest even
        const auto narrow = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        data.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
      } else {
        data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
      }
    }
    header[name] = {{"dtype", type}, {"shape", tensor[2]}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  folder.Write("model.safetensors",
               absl::StrCat(std::string(reinterpret_cast<const char*>(&size), 8), text, data));
  folder.Write("config.json", model["config"].dump());
}

// One choice of number formats in which to run a model with bf16 weights.
struct Way {
  const char* name;
  CpuNumerics numerics;
  DType kv_type;
};
constexpr Way kFloat = {"products and KV in float", CpuNumerics::kF32, DType::kF32};
constexpr Way kNarrow[] = {
    {"KV in bf16", CpuNumerics::kF32, DType::kBF16},
    {"KV in bf16, products by amx", CpuNumerics::kAmx, DType::kBF16},
    {"KV in bf16, products by avx512-bf16", CpuNumerics::kAvx512Bf16, DType::kBF16}};

std::vector<float> Logits(const std::string& folder, const Way& way,
                          const std::vector<TokenId>& tokens, const std::vector<int>& positions) {
  auto backend = CreateCpuBackend({.threads = 1, .numerics = way.numerics});
  if (!backend.ok()) {  // the portable code gives the same bits, only slower
    backend = CreateCpuBackend(
        {.threads = 1, .isa = CpuBackendOptions::Isa::kPortable, .numerics = way.numerics});
  }
  const auto model = Model::Load(folder, backend->get());
  EXPECT_TRUE(model.ok()) << model.status();
  const int rows = static_cast<int>(tokens.size());
  const auto pass = ForwardPass::Create(model->get(), backend->get(), rows).value();
  const KvLayout layout = (*model)->LayoutFor(16, way.kv_type);
  std::vector<BlockId> blocks(layout.BlocksFor(rows));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::byte> pool(blocks.size() * layout.BlockBytes());
  const SequenceRows sequence{.rows = rows, .blocks = blocks};
  const int reach = RopeReach((*model)->config().rope, rows, rows);
  std::vector<float> logits(positions.size() * (*model)->config().vocab);
  const absl::Status status =
      pass->Run({.tokens = tokens,
                 .sequences = {&sequence, 1},
                 .logit_rows = positions,
                 .rope_reach = {&reach, 1}},
                {.data = pool.data(), .layout = layout}, absl::MakeSpan(logits));
  EXPECT_TRUE(status.ok()) << status;
  return logits;
}

struct Distance {
  double error = 0, largest = 0;  // largest absolute difference and largest absolute logit
};
// Compares `logits` with the golden file. Of each row, the golden file holds only every `every`-th
// logit.
Distance DistanceOf(const std::vector<float>& logits, const json& golden, int every) {
  Distance distance;
  const size_t vocab = logits.size() / golden.size();
  for (size_t row = 0; row < golden.size(); ++row) {
    size_t at = row * vocab;
    for (const double expected : golden[row]) {
      const double error = std::abs(logits[at] - expected);
      distance.error = std::isfinite(error) ? std::max(distance.error, error) : INFINITY;
      distance.largest = std::max(distance.largest, std::abs(expected));
      at += every;
    }
    EXPECT_GE(at, (row + 1) * vocab);
  }
  return distance;
}

// Collects the results of one Way (a choice of number formats) over all runs.
class Record {
 public:
  void Add(const Distance& d, double reference) {
    // The largest of a thousand differences depends on luck, in Baton and in transformers, so the
    // bound has a margin.
    EXPECT_LE(d.error, 1.5 * reference);
    ++runs_;
    sum_ += d.error;
    reference_sum_ += reference;
    worst_ = std::max(worst_, d.error / d.largest);
    reference_worst_ = std::max(reference_worst_, reference / d.largest);
    beyond_ += d.error > kBound * d.largest;
    reference_beyond_ += reference > kBound * d.largest;
    farther_ += d.error > reference;
  }
  // Checks and prints the errors of all runs, beside those of transformers. Must be called after
  // the last run. `way` is the name in the output.
  void Judge(const char* way) const {
    EXPECT_LE(sum_, reference_sum_) << way;
    EXPECT_LE(farther_, runs_ / 10) << way;
    std::printf(
        "%s: at most %.2g of the largest logit, beyond %g in %d of %d; transformers in bfloat16: "
        "%.2g, "
        "%d; mean %.2f of transformers', farther in %d\n",
        way, worst_, kBound, beyond_, runs_, reference_worst_, reference_beyond_,
        sum_ / reference_sum_, farther_);
  }
  static constexpr double kBound = 2e-2;

 private:
  int runs_ = 0, beyond_ = 0, reference_beyond_ = 0, farther_ = 0;
  double sum_ = 0, reference_sum_ = 0, worst_ = 0, reference_worst_ = 0;
};

class Bf16AccuracyTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Bf16AccuracyTest,
                         testing::Range(0, static_cast<int>(Goldens()["models"].size())),
                         [](const testing::TestParamInfo<int>& info) {
                           return Goldens()["models"][info.param]["shape_of"].get<std::string>();
                         });

// The error exceeds kBound for many random models. In transformers' own bfloat16, it does so for
// even more of these models. So this test only compares the two errors. Its limits were chosen with
// seeds 1 to 10, and were not changed for the golden file, which has other seeds.
TEST_P(Bf16AccuracyTest, RandomModelsAreNotFartherFromFloat32ThanTransformersInBfloat16) {
  const json& model = Goldens()["models"][GetParam()];
  const auto positions = model["positions"].get<std::vector<int>>();
  Record record[std::size(kNarrow)];
  for (const json& run : model["runs"]) {
    const int seed = run["seed"];
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TestFolder folder;
    WriteModel(model, seed, folder);
    std::vector<TokenId> prompt(model["prompt_tokens"].get<size_t>());
    const uint64_t vocab = model["config"]["vocab_size"];
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<TokenId>(Sample(absl::StrCat(seed, "/prompt"), i) % vocab);
    }
    const auto distance = [&](const Way& way) {
      return DistanceOf(Logits(folder.path(), way, prompt, positions), run["logits"], 1);
    };
    const Distance exact = distance(kFloat);
    EXPECT_LE(exact.error, 1e-4 * exact.largest);
    for (size_t way = 0; way < std::size(kNarrow); ++way) {
      SCOPED_TRACE(kNarrow[way].name);
      record[way].Add(distance(kNarrow[way]), run["bfloat16_error"]);
    }
  }
  for (size_t way = 0; way < std::size(kNarrow); ++way) record[way].Judge(kNarrow[way].name);
}

TEST(TrainedModelTest, Bf16IsWithinTheBoundAndNearerThanTransformers) {
  const json& trained = Goldens()["trained"];
  const std::string folder =
      absl::StrCat(BATON_SOURCE_DIR, "/", trained["folder"].get<std::string>());
  Record record[std::size(kNarrow)];
  for (const json& run : trained["runs"]) {
    const auto ids = run["ids"].get<std::vector<TokenId>>();
    const auto positions = run["positions"].get<std::vector<int>>();
    const double largest = run["largest"];
    const auto distance = [&](const Way& way) {
      Distance d = DistanceOf(Logits(folder, way, ids, positions), run["logits"], trained["every"]);
      d.largest = largest;  // largest of all logits in the run
      return d;
    };
    EXPECT_LE(distance(kFloat).error, 1e-4 * largest);
    for (size_t way = 0; way < std::size(kNarrow); ++way) {
      SCOPED_TRACE(kNarrow[way].name);
      const Distance narrow = distance(kNarrow[way]);
      EXPECT_LE(narrow.error, Record::kBound * largest);
      EXPECT_LE(narrow.error, run["bfloat16_error"].get<double>());
      record[way].Add(narrow, run["bfloat16_error"]);
    }
  }
  for (size_t way = 0; way < std::size(kNarrow); ++way) record[way].Judge(kNarrow[way].name);
}

}  // namespace
}  // namespace baton
