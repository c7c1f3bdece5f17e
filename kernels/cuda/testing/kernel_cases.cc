#include "kernels/cuda/testing/kernel_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

// Runs the kernel and its reference implementation. `make` returns the parameters for the given
// side: for the kernel or for its reference implementation.
template <typename MakeParams>
void RunBoth(KernelTrial& trial, const Kernel& kernel, const MakeParams& make) {
  trial.Run(kernel, make(Side::kKernel), make(Side::kReference));
}

// Returns a number of columns near the sizes of octets, warps and thread blocks.
int SomeCols(KernelTrial& trial, int i) {
  constexpr int kCols[] = {1, 7, 8, 9, 30, 64, 256, 257, 2048, 2056, 2100};
  return i < 11 ? kCols[i] : trial.Pick(1, 600);
}

std::vector<int32_t> SomeIndices(KernelTrial& trial, int count, int below) {
  std::vector<int32_t> indices(count);
  for (int32_t& index : indices) index = trial.Pick(0, below - 1);
  return indices;
}

// Returns a step of three sequences: a chunk after a cached prefix, a whole prompt, and one decode
// token.
ReferenceStep SomeStep(KernelTrial& trial, const KvLayout& layout, int longest) {
  const int chunk = trial.Pick(1, 4), prompt = trial.Pick(1, 5);
  return ReferenceStep(trial, layout,
                       {trial.Pick(chunk, longest), prompt, trial.Pick(longest / 2, longest)},
                       {chunk, prompt, 1});
}

struct ReferenceRopes {
  ReferenceMemory* ropes;
  ReferenceMemory* frequencies;
  std::vector<DeviceRope> host;
  int max_pairs = 0;
  bool shared = false;
};

ReferenceRopes SomeRopes(KernelTrial& trial, int head_dim, int sequences, bool shared) {
  ReferenceRopes result = {.shared = shared};
  std::vector<float> frequencies;
  for (int s = 0; s < (shared ? 1 : sequences); ++s) {
    const int pairs = trial.Chance(2) ? head_dim / 2 : trial.Pick(1, head_dim / 2);
    result.host.push_back(
        {static_cast<int32_t>(frequencies.size()), pairs, trial.Chance(2) ? 1.0f : 1.25f});
    for (int i = 0; i < pairs; ++i) {
      frequencies.push_back(std::pow(10000.0f, -2.0f * i / head_dim));
    }
    result.max_pairs = std::max(result.max_pairs, pairs);
  }
  result.ropes = trial.Array(result.host);
  result.frequencies = trial.Array(frequencies);
  return result;
}

}  // namespace

std::vector<int> ChosenCases(int cases) {
  const char* const text = std::getenv("BATON_KERNEL_CASES");
  int wanted = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &wanted) || wanted > cases) wanted = cases;
  std::vector<int> chosen;
  for (int k = 0; k < wanted; ++k) chosen.push_back(k * cases / wanted);
  return chosen;
}

absl::Status RunCase(const KernelCase& kernel_case, int i, const TestedKernels& tested,
                     const simt::SimtOptions& options) {
  KernelTrial trial(1000 + i, &tested);
  trial.options = options;
  trial.options.seed += i;
  kernel_case.run(trial, i);
  if (trial.status().ok()) return absl::OkStatus();
  return absl::Status(trial.status().code(),
                      absl::StrCat("case ", i, ": ", trial.status().message()));
}

absl::Status RunCases(const KernelCase& kernel_case, const TestedKernels& tested,
                      const simt::SimtOptions& options) {
  for (const int i : ChosenCases(kernel_case.cases)) {
    const absl::Status status = RunCase(kernel_case, i, tested, options);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

KernelCase EmbeddingCase() {
  return {14, [](KernelTrial& trial, int i) {
            const int hidden = SomeCols(trial, i), rows = trial.Pick(1, 6);
            const ReferenceTensor out = trial.Output(rows, hidden);
            ReferenceMemory* const table = trial.Memory(DType::kBF16, size_t{9} * hidden);
            for (int e = 0; e < 9 * hidden; ++e) table->Set(e, trial.Normal());
            std::vector<int32_t> some = SomeIndices(trial, rows, 9), followed(rows, -1);
            for (int row = 0; row < rows; ++row) {
              if (!trial.Chance(3)) continue;
              followed[row] = trial.Pick(0, 3);
              some[row] = -1;  // the token is not known yet when the step starts
            }
            ReferenceMemory* const tokens = trial.Array(some);
            ReferenceMemory* const follows = trial.Array(followed);
            ReferenceMemory* const sampled = trial.Array(SomeIndices(trial, 4, 9));
            const bool none = std::count(followed.begin(), followed.end(), -1) == rows;
            const auto ids = [](ReferenceMemory* memory, Side side) {
              return reinterpret_cast<int32_t*>(memory->at(side));
            };
            RunBoth(trial, trial.kernels().embedding, [&](Side side) {
              return EmbeddingParams{.table = table->at(side),
                                     .tokens = ids(tokens, side),
                                     .follows = none ? nullptr : ids(follows, side),
                                     .sampled = none ? nullptr : ids(sampled, side),
                                     .out = out.at(side),
                                     .out_stride = out.stride,
                                     .rows = rows,
                                     .hidden = hidden};
            });
            trial.Check(absl::StrCat(rows, " rows of ", hidden), 0, 0);
          }};
}

KernelCase GatherRowsCase() {
  return {14, [](KernelTrial& trial, int i) {
            const int cols = SomeCols(trial, i), count = trial.Pick(1, 6);
            const ReferenceTensor in = trial.Filled(7, cols);
            ReferenceMemory* const out =
                trial.Memory(DType::kBF16, size_t(count) * cols, 0, /*is_output=*/true);
            ReferenceMemory* const rows = trial.Array(SomeIndices(trial, count, 7));
            RunBoth(trial, trial.kernels().gather_rows, [&](Side side) {
              return GatherRowsParams{.in = in.at(side),
                                      .in_stride = in.stride,
                                      .rows = reinterpret_cast<int32_t*>(rows->at(side)),
                                      .out = out->at(side),
                                      .count = count,
                                      .cols = cols};
            });
            trial.Check(absl::StrCat(count, " rows of ", cols), 0, 0);
          }};
}

KernelCase RmsNormCase() {
  return {20, [](KernelTrial& trial, int i) {
            // Column counts that take one warp (up to 1024) or a whole thread block. Later cases
            // compute norms of several heads per row.
            constexpr int kNorms[] = {1, 30, 64, 1024, 1025, 2048, 2056, 4100};
            const bool heads = i >= 12;
            const int n = heads ? trial.Pick(1, 140) : kNorms[i % 8];
            const int groups = heads ? trial.Pick(2, 5) : 1, rows = trial.Pick(1, 7);
            const bool in_place = i % 3 == 0;
            const ReferenceTensor in = in_place
                                           ? trial.InOut(rows, groups * n)
                                           : trial.Filled(rows, groups * n, i % 5 == 4 ? 1e-3 : 2);
            const ReferenceTensor out = in_place ? in : trial.Output(rows, groups * n);
            const ReferenceTensor weight = trial.Filled(1, n);
            RunBoth(trial, trial.kernels().rms_norm, [&](Side side) {
              return RmsNormParams{.in = in.at(side),
                                   .in_stride = in.stride,
                                   .weight = weight.at(side),
                                   .out = out.at(side),
                                   .out_stride = out.stride,
                                   .rows = rows,
                                   .groups = groups,
                                   .n = n,
                                   .epsilon = 1e-5f};
            });
            trial.Check(absl::StrCat(rows, " rows of ", groups, " x ", n), 0);
          }};
}

KernelCase BiasRowsCase() {
  return {14, [](KernelTrial& trial, int i) {
            const int cols = SomeCols(trial, i), rows = trial.Pick(1, 5);
            const bool accumulate = trial.Chance(2);
            const ReferenceTensor bias = trial.Filled(1, cols);
            const ReferenceTensor out =
                accumulate ? trial.InOut(rows, cols) : trial.Output(rows, cols);
            RunBoth(trial, trial.kernels().bias_rows, [&](Side side) {
              return BiasRowsParams{.bias = bias.at(side),
                                    .out = out.at(side),
                                    .out_stride = out.stride,
                                    .rows = rows,
                                    .cols = cols,
                                    .accumulate = accumulate};
            });
            // The kernel and its reference implementation round the sum of two bf16 once, so
            // results must be equal.
            trial.Check(absl::StrCat(rows, " rows of ", cols, accumulate ? ", added" : ""), 0, 0);
          }};
}

KernelCase SiluMulCase() {
  return {14, [](KernelTrial& trial, int i) {
            const int cols = SomeCols(trial, i), rows = trial.Pick(1, 5);
            const bool in_place = trial.Chance(2);
            const ReferenceTensor up = trial.Filled(rows, cols);
            const ReferenceTensor gate =
                in_place ? trial.InOut(rows, cols) : trial.Filled(rows, cols, 4);
            constexpr float kEnds[] = {0, -0.0f, 80, -80, 1000, -1000, 1e-30f, 3e38f};
            for (int c = 0; c < std::min(cols, 8); ++c) gate.memory->Set(c, kEnds[c]);
            const ReferenceTensor out = in_place ? gate : trial.Output(rows, cols);
            RunBoth(trial, trial.kernels().silu_mul, [&](Side side) {
              return SiluMulParams{.gate = gate.at(side),
                                   .up = up.at(side),
                                   .out = out.at(side),
                                   .gate_stride = gate.stride,
                                   .up_stride = up.stride,
                                   .out_stride = out.stride,
                                   .rows = rows,
                                   .cols = cols};
            });
            trial.Check(absl::StrCat(rows, " rows of ", cols), 1e-37);
          }};
}

KernelCase RopeTableCase() {
  return {10, [](KernelTrial& trial, int i) {
            const int head_dim = trial.Pick(2, 200);
            const ReferenceStep step = SomeStep(trial, {1, 1, head_dim, trial.Pick(1, 9)}, 3000);
            const ReferenceRopes ropes = SomeRopes(trial, head_dim, 3, i % 2 == 0);
            ReferenceMemory* const table =
                trial.Memory(DType::kF32, step.sequence_of_row.size() * 2 * ropes.max_pairs, 0,
                             /*is_output=*/true);
            RunBoth(trial, trial.kernels().rope_table, [&](Side side) {
              return RopeTableParams{
                  .step = step.at(side),
                  .ropes = reinterpret_cast<DeviceRope*>(ropes.ropes->at(side)),
                  .frequencies = reinterpret_cast<float*>(ropes.frequencies->at(side)),
                  .table = reinterpret_cast<float*>(table->at(side)),
                  .max_pairs = ropes.max_pairs,
                  .shared = ropes.shared};
            });
            trial.Check(absl::StrCat("head_dim ", head_dim), 2e-7, 1);
          }};
}

KernelCase RopeWriteKvCase() {
  return {18, [](KernelTrial& trial, int i) {
            constexpr int kHeadDims[] = {64, 80, 96, 128, 256, 10, 2, 33, 17};
            const int head_dim = kHeadDims[i % 9], ratio = trial.Pick(1, 5);
            const KvLayout layout = {.layers = 3,
                                     .kv_heads = trial.Pick(1, 3),
                                     .head_dim = head_dim,
                                     .block_tokens = trial.Pick(1, 9),
                                     .type = kTypes[i % 3]};
            const ReferenceStep step = SomeStep(trial, layout, 40);
            const int rows = static_cast<int>(step.sequence_of_row.size());
            const int layer = trial.Pick(0, 2);
            const ReferenceRopes ropes = SomeRopes(trial, head_dim, 3, i % 2 == 0);
            ReferenceMemory* const table =
                trial.Memory(DType::kF32, size_t(rows) * 2 * ropes.max_pairs);
            for (int e = 0; e < rows * 2 * ropes.max_pairs; ++e) table->Set(e, trial.Normal());
            const ReferenceTensor q = trial.InOut(rows, layout.kv_heads * ratio * head_dim);
            const ReferenceTensor k = trial.Filled(rows, layout.kv_heads * head_dim);
            const ReferenceTensor v = trial.Filled(rows, layout.kv_heads * head_dim);
            RunBoth(trial, trial.kernels().rope_write_kv, [&](Side side) {
              return RopeWriteKvParams{
                  .step = step.at(side),
                  .ropes = reinterpret_cast<DeviceRope*>(ropes.ropes->at(side)),
                  .table = reinterpret_cast<float*>(table->at(side)),
                  .max_pairs = ropes.max_pairs,
                  .shared = ropes.shared,
                  .q = q.at(side),
                  .k = k.at(side),
                  .v = v.at(side),
                  .q_stride = q.stride,
                  .k_stride = k.stride,
                  .v_stride = v.stride,
                  .heads = layout.kv_heads * ratio,
                  .pages = step.pages(side, layer)};
            });
            // An element is the difference of two terms, each up to several units large. So its
            // error may be more than its last bit.
            trial.Check(absl::StrCat(layout.Fingerprint(), " ratio ", ratio), 2e-6,
                        layout.type == DType::kF32 ? 1 : 0.03);
          }};
}

KernelCase ArgmaxCase() {
  return {12, [](KernelTrial& trial, int i) {
            constexpr float kInfinity = std::numeric_limits<float>::infinity();
            const int vocab = i < 3 ? std::array{1, 31, 300}[i] : trial.Pick(2, 2000);
            constexpr int kRows = 8;
            ReferenceMemory* const logits = trial.Memory(DType::kF32, size_t{kRows} * vocab);
            for (int row = 0; row < kRows; ++row) {
              // Rounds the logits, so that many are equal. Among equal logits the kernel must
              // choose the lowest id.
              for (int token = 0; token < vocab; ++token) {
                logits->Set(row * vocab + token,
                            row == 0 ? -kInfinity : std::round(trial.Normal(row)));
              }
              const int somewhere = row * vocab + trial.Pick(0, vocab - 1);
              if (row == 1) logits->Set(somewhere, NAN);
              if (row == 2) logits->Set(somewhere, kInfinity);
              if (row == 3) logits->Set(somewhere, -kInfinity);
              if (row == 4) logits->Set(row * vocab + vocab - 1, 1e30f);
              if (row == 5) logits->Set(row * vocab, 1e30f);
            }
            ReferenceMemory* const tokens = trial.Memory(DType::kF32, kRows, 0, /*is_output=*/true);
            for (int row = 0; row < kRows; ++row) tokens->Set(row, 5);
            RunBoth(trial, trial.kernels().argmax, [&](Side side) {
              return ArgmaxParams{.logits = reinterpret_cast<float*>(logits->at(side)),
                                  .tokens = reinterpret_cast<int32_t*>(tokens->at(side)),
                                  .rows = kRows,
                                  .vocab = vocab};
            });
            trial.Check(absl::StrCat("vocabulary of ", vocab), 0, 0);
          }};
}

}  // namespace baton
