#pragma once

#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/runtime/kernel.h"

namespace baton {

// The grid that a kernel wants for what it is given. Blocks are no larger than there is work for;
// params of no rows have no grid.
LaunchShape LaunchOf(const EmbeddingParams& params);
LaunchShape LaunchOf(const GatherRowsParams& params);
LaunchShape LaunchOf(const RmsNormParams& params);
LaunchShape LaunchOf(const BiasRowsParams& params);
LaunchShape LaunchOf(const SiluMulParams& params);
LaunchShape LaunchOf(const RopeTableParams& params);
LaunchShape LaunchOf(const RopeWriteKvParams& params);
LaunchShape LaunchOf(const PagedAttentionParams& params);
LaunchShape LaunchOf(const AttentionPlanParams& params);
// Of split_attention; merge_attention has a grid of its own.
LaunchShape LaunchOf(const SplitAttentionParams& params);
LaunchShape MergeLaunchOf(const SplitAttentionParams& params);
LaunchShape LaunchOf(const PrefillAttentionParams& params);
LaunchShape LaunchOf(const ArgmaxParams& params);

}  // namespace baton
