#pragma once

#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/runtime/kernel.h"

namespace baton {

// Each function returns the launch shape of one kernel for its parameters. Thread blocks are no
// larger than the work needs. Parameters without rows have no valid shape.
LaunchShape LaunchOf(const EmbeddingParams& params);
LaunchShape LaunchOf(const GatherRowsParams& params);
LaunchShape LaunchOf(const RmsNormParams& params);
LaunchShape LaunchOf(const BiasRowsParams& params);
LaunchShape LaunchOf(const SiluMulParams& params);
LaunchShape LaunchOf(const RopeTableParams& params);
LaunchShape LaunchOf(const RopeWriteKvParams& params);
LaunchShape LaunchOf(const PagedAttentionParams& params);
LaunchShape LaunchOf(const AttentionPlanParams& params);
// Both split_attention and merge_attention take SplitAttentionParams. LaunchOf returns the launch
// shape of split_attention, MergeLaunchOf that of merge_attention.
LaunchShape LaunchOf(const SplitAttentionParams& params);
LaunchShape MergeLaunchOf(const SplitAttentionParams& params);
LaunchShape LaunchOf(const PrefillAttentionParams& params);
LaunchShape LaunchOf(const ArgmaxParams& params);

}  // namespace baton
