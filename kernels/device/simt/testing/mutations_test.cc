#include "kernels/mutations/mutations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/simt/float_formats.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/testing/sample_kernels.h"

namespace baton::simt {
namespace {

using emulated_kernels::NormalizeParams;
using emulated_kernels::SplitAttentionParams;
using emulated_kernels::TileGemmParams;
using mutations::MutationReport;

// An array in device memory, aligned like memory of the runtime.
template <typename T>
class Array {
 public:
  Array(MemoryMap& map, size_t count, T fill, bool written)
      : map_(map), memory_(count + 256, fill) {
    at_ = memory_.data();
    while (reinterpret_cast<uintptr_t>(at_) % 256 != 0) ++at_;
    count_ = count;
    map_.Add(at_, count * sizeof(T), written);
  }
  Array(const Array&) = delete;
  ~Array() { map_.Remove(at_); }
  T* data() { return at_; }
  T& operator[](size_t i) { return at_[i]; }
  size_t size() const { return count_; }

 private:
  MemoryMap& map_;
  std::vector<T> memory_;
  T* at_;
  size_t count_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float Value(std::mt19937& random) { return std::uniform_real_distribution<float>(-1, 1)(random); }

// Stores x as bf16 in `to`, and returns the stored value as float.
float PutBf16(uint16_t& to, float x) {
  to = FloatToBf16(x);
  return Bf16ToFloat(to);
}

absl::Status Near(const char* what, size_t i, double got, double expected, double tolerance) {
  if (std::fabs(got - expected) <= tolerance) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what, " ", i, " is ", got, ", not ", expected));
}

absl::Status JudgeNormalize(SimtOptions options) {
  MemoryMap memory;
  options.memory = &memory;
  for (const int columns : {512, 300, 70}) {
    constexpr int kRows = 3;
    std::mt19937 random(columns);
    Array<float> in(memory, kRows * columns, 0, true), out(memory, kRows * columns, kNan, false),
        largest(memory, kRows, kNan, false);
    for (size_t i = 0; i < in.size(); ++i) in[i] = Value(random);
    const NormalizeParams params{in.data(), out.data(), largest.data(), columns};
    RETURN_IF_ERROR(RunGrid(emulated_kernels::kNormalize,
                            {.grid_x = kRows, .threads = emulated_kernels::kNormalizeThreads},
                            &params, options));
    for (int row = 0; row < kRows; ++row) {
      double squares = 0, max = 0;
      for (int i = 0; i < columns; ++i) squares += std::pow(in[row * columns + i], 2);
      for (int i = 0; i < columns; ++i) {
        const double expected = in[row * columns + i] / std::sqrt(squares / columns);
        max = std::fmax(max, std::fabs(expected));
        RETURN_IF_ERROR(Near("out", i, out[row * columns + i], expected, 1e-5));
      }
      RETURN_IF_ERROR(Near("largest", row, largest[row], max, 1e-5));
    }
  }
  return absl::OkStatus();
}

absl::Status JudgeGemm(SimtOptions options) {
  MemoryMap memory;
  options.memory = &memory;
  struct Shape {
    int m, n, k;
  };
  for (const Shape& shape : {Shape{64, 32, 160}, Shape{70, 40, 136}, Shape{1, 33, 40}}) {
    std::mt19937 random(shape.m);
    Array<uint16_t> a(memory, shape.m * shape.k, 0, true), b(memory, shape.n * shape.k, 0, true);
    Array<float> out(memory, shape.m * shape.n, kNan, false);
    std::vector<float> left, right;
    for (size_t i = 0; i < a.size(); ++i) left.push_back(PutBf16(a[i], Value(random)));
    for (size_t i = 0; i < b.size(); ++i) right.push_back(PutBf16(b[i], Value(random)));
    const TileGemmParams params{a.data(), b.data(), out.data(), shape.m, shape.n, shape.k};
    const LaunchShape grid{.grid_x = (shape.n - 1) / emulated_kernels::kGemmColumns + 1,
                           .grid_y = (shape.m - 1) / emulated_kernels::kGemmRows + 1,
                           .threads = emulated_kernels::kGemmThreads,
                           .shared_bytes = emulated_kernels::kGemmSharedBytes};
    RETURN_IF_ERROR(RunGrid(emulated_kernels::kTileGemm, grid, &params, options));
    for (int row = 0; row < shape.m; ++row) {
      for (int column = 0; column < shape.n; ++column) {
        double sum = 0;
        for (int k = 0; k < shape.k; ++k) {
          sum += double{left[row * shape.k + k]} * right[column * shape.k + k];
        }
        const size_t at = row * shape.n + column;
        RETURN_IF_ERROR(Near("out", at, out[at], sum, 1e-4));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status JudgeAttention(SimtOptions options) {
  constexpr int kDim = SplitAttentionParams::kHeadDim, kTokens = SplitAttentionParams::kPageTokens;
  constexpr int kHeads = 2, kSequences = 3, kSplits = 2, kMaxPages = 9, kPages = 32;
  // The last sequence fills its row of the page table.
  const int lengths_are[kSequences] = {5, 64, 135};
  MemoryMap memory;
  options.memory = &memory;
  std::mt19937 random(1);
  Array<float> query(memory, kSequences * kHeads * kDim, 0, true),
      out(memory, kSequences * kHeads * kDim, kNan, false),
      partial(memory, kSequences * kHeads * kSplits * (kDim + 2), kNan, false);
  // The arrays begin filled with NaN and invalid ids, which remain where there is no token.
  Array<uint16_t> keys(memory, kPages * kHeads * kTokens * kDim, 0xffff, true),
      values(memory, kPages * kHeads * kTokens * kDim, 0xffff, true);
  Array<int> table(memory, kSequences * kMaxPages, -1, true), lengths(memory, kSequences, 0, true);
  for (size_t i = 0; i < query.size(); ++i) query[i] = 4 * Value(random);
  std::vector<int> ids(kPages);
  for (int i = 0; i < kPages; ++i) ids[i] = i;
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<double> expected;
  for (int s = 0; s < kSequences; ++s) {
    lengths[s] = lengths_are[s];
    for (int i = 0; i * kTokens < lengths[s]; ++i) {
      table[s * kMaxPages + i] = ids.back();
      ids.pop_back();
    }
    for (int h = 0; h < kHeads; ++h) {
      std::vector<double> scores(lengths[s]);
      std::vector<double> sums(kDim);
      std::vector<float> value(lengths[s] * kDim);
      for (int t = 0; t < lengths[s]; ++t) {
        const int page = table[s * kMaxPages + t / kTokens];
        for (int d = 0; d < kDim; ++d) {
          const int at = ((page * kHeads + h) * kTokens + t % kTokens) * kDim + d;
          // Later keys have larger values, so that the maximum of the scores increases.
          const float key = PutBf16(keys[at], Value(random) * (1 + 0.03f * t));
          scores[t] += 0.125 * query[(s * kHeads + h) * kDim + d] * key;
          value[t * kDim + d] = PutBf16(values[at], Value(random));
        }
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (int t = 0; t < lengths[s]; ++t) {
        const double weight = std::exp(scores[t] - max);
        total += weight;
        for (int d = 0; d < kDim; ++d) sums[d] += weight * value[t * kDim + d];
      }
      for (int d = 0; d < kDim; ++d) expected.push_back(sums[d] / total);
    }
  }
  const SplitAttentionParams params{query.data(),   keys.data(),    values.data(), table.data(),
                                    lengths.data(), partial.data(), out.data(),    kHeads,
                                    kMaxPages,      kSplits};
  absl::Status status =
      RunGrid(emulated_kernels::kSplitAttention,
              {.grid_x = kSplits, .grid_y = kHeads, .grid_z = kSequences, .threads = 128}, &params,
              options);
  RETURN_IF_ERROR(status);
  status = RunGrid(emulated_kernels::kMergeSplits,
                   {.grid_x = kHeads, .grid_y = kSequences, .threads = 32}, &params, options);
  for (size_t i = 0; i < out.size() && status.ok(); ++i) {
    status = Near("out", i, out[i], expected[i], 1e-4);
  }
  return status;
}

MutationReport Try(absl::Status (*judge)(SimtOptions)) {
  return mutations::TryMutations(mutations::AllMutations(),
                                 [&](uint64_t seed) { return judge({.seed = seed}); });
}

std::vector<std::string> Names(const std::vector<mutations::Mutation>& found) {
  std::vector<std::string> names;
  for (const mutations::Mutation& mutation : found) names.push_back(mutation.name);
  return names;
}

int NumberOf(const std::string& name) {
  for (const mutations::Mutation& mutation : mutations::AllMutations()) {
    if (mutation.name == name) return mutation.number;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(MutationsTest, EveryMutationOfANormalizationIsCaught) {
  const MutationReport report = Try(JudgeNormalize);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_THAT(Names(report.caught),
              testing::UnorderedElementsAre(
                  "normalize: columns", "normalize: sum of the warp", "normalize: lane that writes",
                  "normalize: barrier before sums are read", "normalize: warps",
                  "normalize: barrier after sums were read",
                  "normalize: barrier before maxima are read", "normalize: one lane writes"));
}

TEST(MutationsTest, EveryMutationOfAPipelinedGemmIsCaught) {
  const MutationReport report = Try(JudgeGemm);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_THAT(Names(report.caught),
              testing::UnorderedElementsAre(
                  "gemm: mask of rows", "gemm: mask of k", "gemm: wait",
                  "gemm: barrier", "gemm: stage that is filled", "gemm: groups at the end",
                  "gemm: half of a", "gemm: k of b", "gemm: row of a sum",
                  "gemm: rows that are stored", "gemm: columns that are stored"));
}

TEST(MutationsTest, EveryMutationOfASplitPagedAttentionIsCaught) {
  const MutationReport report = Try(JudgeAttention);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_THAT(Names(report.caught),
              testing::UnorderedElementsAre(
                  "attention: last page", "attention: table of pages", "attention: mask of loads",
                  "attention: wait", "attention: barrier before a page is read",
                  "attention: mask of tokens", "attention: rescale",
                  "attention: barrier before warps are merged", "attention: rescale of warps",
                  "merge: splits", "merge: rescale", "merge: second output"));
}

// Missing barriers and waits also give wrong values without the checker, because of poisoned memory
// and the schedules. So tests of unchecked kernels find them, too.
TEST(MutationsTest, BarriersAndWaitsThatAreMissingShowInValuesAloneUnderSomeSchedule) {
  struct Missing {
    absl::Status (*judge)(SimtOptions);
    const char* mutation;
  };
  for (const Missing& missing :
       {Missing{JudgeNormalize, "normalize: barrier before sums are read"},
        Missing{JudgeNormalize, "normalize: barrier after sums were read"},
        Missing{JudgeNormalize, "normalize: barrier before maxima are read"},
        Missing{JudgeGemm, "gemm: wait"}, Missing{JudgeGemm, "gemm: barrier"},
        Missing{JudgeGemm, "gemm: groups at the end"},
        Missing{JudgeAttention, "attention: wait"},
        Missing{JudgeAttention, "attention: barrier before a page is read"},
        Missing{JudgeAttention, "attention: barrier before warps are merged"}}) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SimtOptions options;
      options.seed = seed;
      options.check = false;
      EXPECT_EQ(missing.judge(options), absl::OkStatus());
      const mutations::ScopedMutation on(NumberOf(missing.mutation));
      wrong += missing.judge(options).code() == absl::StatusCode::kDataLoss;
    }
    EXPECT_GT(wrong, 0) << missing.mutation;
  }
}

TEST(MutationsTest, AJudgeThatSeesNothingMissesThemAll) {
  const MutationReport report = Try([](SimtOptions options) {
    options.check = false;
    float in[128] = {1}, out[128], largest[1];
    const NormalizeParams params{in, out, largest, 128};
    return RunGrid(emulated_kernels::kNormalize, {.threads = emulated_kernels::kNormalizeThreads},
                   &params, options);
  });
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_EQ(report.missed.size(), 8u);
  EXPECT_THAT(report.caught, testing::IsEmpty());
}

TEST(MutationsTest, NothingIsMutatedWhenTheJudgeFindsAFaultInTheKernelItself) {
  int calls = 0;
  const MutationReport report = mutations::TryMutations(mutations::AllMutations(), [&](uint64_t) {
    ++calls;
    return absl::DataLossError("wrong");
  });
  EXPECT_EQ(report.unmutated, absl::DataLossError("wrong"));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace baton::simt
