#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/kernel_trial.h"
#include "kernels/cuda/simt/run_grid.h"

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
KernelCase ArgmaxCase();

}  // namespace baton
