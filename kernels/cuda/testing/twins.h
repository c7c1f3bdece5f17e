#pragma once

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// What the kernels compute, as plainly as it can be said: the same parameters with pointers to host
// memory, double arithmetic in the order of reading, and one rounding where the kernel writes. A
// kernel's result differs by its float arithmetic alone. For tests.
void RunTwin(const EmbeddingParams& params);
void RunTwin(const GatherRowsParams& params);
void RunTwin(const RmsNormParams& params);
void RunTwin(const BiasRowsParams& params);
void RunTwin(const SiluMulParams& params);
void RunTwin(const RopeTableParams& params);
void RunTwin(const RopeWriteKvParams& params);
void RunTwin(const PagedAttentionParams& params);
void RunTwin(const AttentionPlanParams& params);
// Those rows alone that split_attention and merge_attention compute, or prefill_attention.
void RunTwin(const SplitAttentionParams& params);
void RunTwin(const PrefillAttentionParams& params);
void RunTwin(const ArgmaxParams& params);

}  // namespace baton
