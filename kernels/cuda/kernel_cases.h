#pragma once

#include <functional>

#include "kernels/cuda/kernel_bench.h"

namespace baton {

// Random cases of one kernel: sets up memory, runs kernel and twin, checks. `i` chooses what every
// run must see: types, sizes, ratios.
struct KernelCase {
  int cases = 0;
  std::function<void(KernelBench& bench, int i)> run;
};

KernelCase EmbeddingCase();
KernelCase GatherRowsCase();
KernelCase RmsNormCase();
KernelCase BiasRowsCase();
KernelCase SiluMulCase();
KernelCase RopeTableCase();
KernelCase RopeWriteKvCase();
KernelCase PagedAttentionCase();
KernelCase ArgmaxCase();

}  // namespace baton
