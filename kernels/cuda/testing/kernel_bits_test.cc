#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

// Checks that the bits of a row do not depend on other rows, on its place in memory, or on the
// chunk in which it is computed. Linked into the same programs as kernels_test.cc.
class KernelBitsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto tested = OpenTestedKernels();
    if (absl::IsFailedPrecondition(tested.status())) GTEST_SKIP() << tested.status().message();
    ASSERT_TRUE(tested.ok()) << tested.status();
    tested_ = *std::move(tested);
  }
  TestedKernels tested_;
};

// Two copies of the same random matrix. `shifted` is aligned to 2 bytes only.
struct TwoPlaces {
  TwoPlaces(KernelTrial& trial, int rows, int cols, float deviation = 1)
      : aligned(trial.Memory(DType::kBF16, size_t{1} * rows * cols)),
        shifted(trial.Memory(DType::kBF16, size_t{1} * rows * cols, 2)),
        cols(cols) {
    for (size_t i = 0; i < size_t{1} * rows * cols; ++i) {
      const float value = trial.Normal(deviation);
      for (ReferenceMemory* const memory : {aligned, shifted}) memory->Set(i, value);
    }
  }
  void* row(ReferenceMemory* memory, int row) const {
    return memory->at(Side::kKernel, size_t{1} * row * cols);
  }
  ReferenceMemory *aligned, *shifted;
  int cols;
};

// `together` computes all rows of `out` at once, `alone` computes one row. Both must give the same
// bits.
void ExpectSameBits(KernelTrial& trial, ReferenceMemory* out, absl::string_view what, int rows,
                    const std::function<void()>& together, const std::function<void(int)>& alone) {
  together();
  out->MakeExpected();
  for (int row = 0; row < rows; ++row) alone(row);
  trial.Check(what, 0, 0);
  EXPECT_EQ(trial.status(), absl::OkStatus());
}

TEST_F(KernelBitsTest, NormsGatesAndBiasesOfARowAloneAndElsewhere) {
  constexpr int kRows = 5;
  for (const int cols : {64, 257, 1024, 1025, 2056}) {
    SCOPED_TRACE(cols);
    KernelTrial trial(cols, &tested_);
    const TwoPlaces in(trial, kRows, cols, 2), up(trial, kRows, cols), weight(trial, 1, cols);
    const auto output = [&] {
      return trial.Memory(DType::kBF16, size_t{1} * kRows * cols, 0, /*is_output=*/true);
    };
    const auto row_of = [&](ReferenceMemory* memory, int row) { return in.row(memory, row); };
    ReferenceMemory* const normed = output();
    const auto norm = [&](ReferenceMemory* from, ReferenceMemory* by, int row, int rows) {
      const RmsNormParams params = {.in = row_of(from, row),
                                    .in_stride = cols,
                                    .weight = by->at(Side::kKernel),
                                    .out = row_of(normed, row),
                                    .out_stride = cols,
                                    .rows = rows,
                                    .groups = 1,
                                    .n = cols,
                                    .epsilon = 1e-5f};
      trial.Run(trial.kernels().rms_norm, LaunchOf(params), params);
    };
    ExpectSameBits(
        trial, normed, "rms_norm", kRows, [&] { norm(in.aligned, weight.aligned, 0, kRows); },
        [&](int row) { norm(in.shifted, weight.shifted, row, 1); });
    ReferenceMemory* const gated = output();
    const auto gate = [&](ReferenceMemory* from, ReferenceMemory* other, int row, int rows) {
      const SiluMulParams params = {.gate = row_of(from, row),
                                    .up = row_of(other, row),
                                    .out = row_of(gated, row),
                                    .gate_stride = cols,
                                    .up_stride = cols,
                                    .out_stride = cols,
                                    .rows = rows,
                                    .cols = cols};
      trial.Run(trial.kernels().silu_mul, LaunchOf(params), params);
    };
    ExpectSameBits(
        trial, gated, "silu_mul", kRows, [&] { gate(in.aligned, up.aligned, 0, kRows); },
        [&](int row) { gate(in.shifted, up.shifted, row, 1); });
    ReferenceMemory* const biased = output();
    const auto bias = [&](ReferenceMemory* by, int row, int rows) {
      const BiasRowsParams params = {.bias = by->at(Side::kKernel),
                                     .out = row_of(biased, row),
                                     .out_stride = cols,
                                     .rows = rows,
                                     .cols = cols,
                                     .accumulate = false};
      trial.Run(trial.kernels().bias_rows, LaunchOf(params), params);
    };
    ExpectSameBits(
        trial, biased, "bias_rows", kRows, [&] { bias(weight.aligned, 0, kRows); },
        [&](int row) { bias(weight.shifted, row, 1); });
  }
}

enum class Way { kPaged, kSplit, kPrefill };

// Computes attention with the kernels that `way` chooses. `rows_of` is the number of rows of each
// sequence in params.step.
void Attend(KernelTrial& trial, Way way, const PagedAttentionParams& params,
            const std::vector<int>& rows_of) {
  const KernelTable& kernels = trial.kernels();
  const int rows = params.step.rows, head_dim = params.pages.head_dim;
  const int index = AttentionKernelIndex(params.pages), tile_rows = AttentionTileRows(params);
  if (way == Way::kPaged) {
    trial.Run(kernels.paged_attention, LaunchOf(params), params);
  } else if (way == Way::kPrefill) {
    PrefillAttentionParams prefill = {.attention = params,
                                      .sequences = static_cast<int32_t>(rows_of.size()),
                                      .prefill_rows = 1,
                                      .tile_rows = tile_rows * kPrefillAttentionWarps};
    for (const int count : rows_of) prefill.tiles += TilesOf(count, prefill.tile_rows);
    trial.Run(kernels.prefill_attention[index], LaunchOf(prefill), prefill);
  } else {
    constexpr int kMaxRanges = 3;
    const size_t items = size_t{kMaxRanges} * rows, lines = items * tile_rows * params.heads;
    const auto scratch = [&](size_t words) { return trial.Scratch(words)->at(Side::kKernel); };
    const SplitAttentionParams split = {
        .attention = params,
        .plan = {.step = params.step,
                 .rows = rows,
                 .prefill_rows = INT32_MAX,
                 .tile_rows = tile_rows,
                 .window = params.window,
                 .first_item = reinterpret_cast<int32_t*>(scratch(rows + 1)),
                 .items = reinterpret_cast<AttentionItem*>(scratch(2 * items))},
        .blocks = 3,
        .values = reinterpret_cast<float*>(scratch(lines * head_dim)),
        .sums = reinterpret_cast<float*>(scratch(2 * lines))};
    trial.Run(kernels.attention_plan, LaunchOf(split.plan), split.plan);
    trial.Run(kernels.split_attention[index], LaunchOf(split), split);
    trial.Run(kernels.merge_attention, MergeLaunchOf(split), split);
  }
}

TEST_F(KernelBitsTest, AttentionOfARowAloneAndInChunks) {
  constexpr struct {
    Way together, alone;
    int head_dim, window;
    float soft_cap;
    int ratio;
    DType type = DType::kBF16;
  } kRuns[] = {{Way::kPaged, Way::kPaged, 64, 0, 0, 4},
               {Way::kPaged, Way::kPaged, 33, 20, 2, 4},
               {Way::kSplit, Way::kSplit, 64, 0, 0, 4},
               {Way::kPrefill, Way::kSplit, 64, 0, 0, 4},
               {Way::kPrefill, Way::kSplit, 64, 0, 2, 4, DType::kF16},
               {Way::kPrefill, Way::kSplit, 80, 0, 0, 7},
               {Way::kPrefill, Way::kSplit, 96, 0, 0, 1},
               {Way::kPrefill, Way::kSplit, 128, 0, 0, 8},
               {Way::kPrefill, Way::kSplit, 256, 0, 2, 5},
               {Way::kPrefill, Way::kPrefill, 128, 100, 0, 4}};
  for (const auto& run : kRuns) {
    SCOPED_TRACE(absl::StrCat("head_dim ", run.head_dim, ", window ", run.window, ", cap ",
                              run.soft_cap, ", ratio ", run.ratio));
    if (run.together == Way::kPrefill &&
        PrefillAttentionSharedBytes(run.head_dim) > tested_.shared_bytes()) {
      continue;
    }
    KernelTrial trial(7, &tested_);
    trial.options.max_shared_bytes = size_t{163} << 10;  // limit of sm_80
    const KvLayout layout = {1, 1, run.head_dim, 16, run.type};
    // Three sequences: a chunk that crosses the end of a range, a whole prompt, and a single token.
    const std::vector<int> rows_of = {6, 5, 1};
    ReferenceStep step(trial, layout, {kAttentionRange + 3, 5, 70}, rows_of);
    step.FillPool(trial, 0, run.window);
    const int rows = static_cast<int>(step.sequence_of_row.size());
    const int cols = run.ratio * run.head_dim;
    const TwoPlaces q(trial, rows, cols);
    ReferenceMemory* const out =
        trial.Memory(DType::kBF16, size_t{1} * rows * cols, 0, /*is_output=*/true);
    const auto params = [&](const StepRows& which, ReferenceMemory* from, int row) {
      return PagedAttentionParams{.step = which,
                                  .q = q.row(from, row),
                                  .out = q.row(out, row),
                                  .q_stride = cols,
                                  .out_stride = cols,
                                  .heads = run.ratio,
                                  .window = run.window,
                                  .scale = 1 / std::sqrt(static_cast<float>(run.head_dim)),
                                  .soft_cap = run.soft_cap,
                                  .pages = step.pages(Side::kKernel, 0)};
    };
    const auto alone = [&](int row) {
      const int s = step.sequence_of_row[row];
      if (s < 0) return;  // a padding row
      int first_row = row;
      while (first_row > 0 && step.sequence_of_row[first_row - 1] == s) --first_row;
      const ReferenceStep::Sequence& sequence = step.sequences[s];
      std::vector<int32_t> table;
      for (const int32_t block : sequence.blocks)
        table.push_back(ReferenceStep::kFirstBlock + block);
      const DeviceSequence one = {0, 1, sequence.first_position + row - first_row, 0};
      const auto at = [](ReferenceMemory* memory) { return memory->at(Side::kKernel); };
      const StepRows of_one = {
          .sequence_of_row = reinterpret_cast<int32_t*>(at(trial.Array<int32_t>({0}))),
          .sequences = reinterpret_cast<DeviceSequence*>(at(trial.Array<DeviceSequence>({one}))),
          .blocks = reinterpret_cast<int32_t*>(at(trial.Array(table))),
          .rows = 1};
      Attend(trial, run.alone, params(of_one, q.shifted, row), {1});
    };
    ExpectSameBits(
        trial, out, "attention", rows,
        [&] { Attend(trial, run.together, params(step.at(Side::kKernel), q.aligned, 0), rows_of); },
        alone);
  }
}

}  // namespace
}  // namespace baton
