#pragma once

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Reference implementations of the kernels, as simple as possible. They take the same parameters,
// but with pointers to host memory. They use double arithmetic in the order of reading, and round
// once where the kernel writes. So a kernel's result differs only by its float arithmetic. For
// tests.
void RunTwin(const EmbeddingParams& params);
void RunTwin(const GatherRowsParams& params);
void RunTwin(const RmsNormParams& params);
void RunTwin(const BiasRowsParams& params);
void RunTwin(const SiluMulParams& params);
void RunTwin(const RopeTableParams& params);
void RunTwin(const RopeWriteKvParams& params);
void RunTwin(const PagedAttentionParams& params);
void RunTwin(const AttentionPlanParams& params);
// These compute only the rows that split_attention and merge_attention compute, or those that
// prefill_attention computes.
void RunTwin(const SplitAttentionParams& params);
void RunTwin(const PrefillAttentionParams& params);
void RunTwin(const ArgmaxParams& params);

}  // namespace baton
