#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/testing/kernel_trial.h"
#include "kernels/device/simt/run_grid.h"

namespace baton {

// Random cases of one kernel: set up memory, run kernel and twin, check. `i` chooses what every
// run must see: types, sizes, ratios.
struct KernelCase {
  int cases = 0;
  std::function<void(KernelTrial& trial, int i)> run;
};

// The numbers of so many cases; BATON_KERNEL_CASES, where it is set, is how many of them at most,
// spread evenly: under compute-sanitizer each takes long.
std::vector<int> ChosenCases(int cases);

// Those, until one fails; each with the options' seed and its own number added.
absl::Status RunCases(const KernelCase& kernel_case, const TestedKernels& tested,
                      const simt::SimtOptions& options = {});

// Those of this test program: each is linked with one maker of them. FailedPrecondition, with what
// is missing, where they can't run.
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
// attention_plan, split_attention and merge_attention against the twin of paged_attention.
KernelCase SplitAttentionCase();
KernelCase PrefillAttentionCase();
// Returns how many `mma` instructions prefill_attention issues for one sequence with `rows` rows, 1
// to 32, behind 192 keys, on the emulator. Its thread block has four warps that take 16 rows each;
// all rows see the same tiles of keys. -1 if the kernel fails.
int64_t MmasOfPrefillAttention(const TestedKernels& tested, int rows);
KernelCase ArgmaxCase();

}  // namespace baton
