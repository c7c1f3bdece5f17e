#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/testing/kernel_trial.h"
#include "kernels/device/simt/run_grid.h"

namespace baton {

// Random cases of one kernel. A case sets up memory, runs the kernel and its reference
// implementation, and compares the results. The case's number `i` selects types, sizes and ratios,
// so that a run of all cases covers each of them.
struct KernelCase {
  int cases = 0;
  std::function<void(KernelTrial& trial, int i)> run;
};

// Returns the numbers 0 to `cases` - 1. If the environment variable BATON_KERNEL_CASES is set,
// returns at most that many of them, evenly spread: under compute-sanitizer each case takes long.
std::vector<int> ChosenCases(int cases);

// Runs one case. Its number `i` is added to the seed.
absl::Status RunCase(const KernelCase& kernel_case, int i, const TestedKernels& tested,
                     const simt::SimtOptions& options = {});
// Runs the chosen cases until one fails.
absl::Status RunCases(const KernelCase& kernel_case, const TestedKernels& tested,
                      const simt::SimtOptions& options = {});

// Opens the kernels of this test program; each program is linked with one definition of this
// function. Returns FailedPrecondition, with what is missing, if the kernels can't run here.
absl::StatusOr<TestedKernels> OpenTestedKernels();

KernelCase EmbeddingCase();
KernelCase GatherRowsCase();
KernelCase RmsNormCase();
KernelCase BiasRowsCase();
KernelCase SiluMulCase();
KernelCase RopeTableCase();
KernelCase RopeWriteKvCase();
KernelCase PagedAttentionCase();
KernelCase AttentionPlanCase();
// Compares attention_plan, split_attention and merge_attention together with the reference
// implementation of paged_attention.
KernelCase SplitAttentionCase();
KernelCase PrefillAttentionCase();
// Returns the number of `mma` instructions that prefill_attention issues on the emulator for one
// sequence: `rows` rows (1 to 32) after 192 cached keys. The thread block has four warps of 16 rows
// each, and all rows see the same tiles of keys. Returns -1 if the kernel fails.
int64_t MmasOfPrefillAttention(const TestedKernels& tested, int rows);
KernelCase ArgmaxCase();

}  // namespace baton
