#pragma once

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Reference implementations of the kernels, as simple as possible. They take the same parameters,
// but with pointers to host memory. They use double arithmetic, and round once where the kernel
// writes. So a kernel's result differs only by its float arithmetic. For tests.
void RunReference(const EmbeddingParams& params);
void RunReference(const GatherRowsParams& params);
void RunReference(const RmsNormParams& params);
void RunReference(const BiasRowsParams& params);
void RunReference(const SiluMulParams& params);
void RunReference(const RopeTableParams& params);
void RunReference(const RopeWriteKvParams& params);
void RunReference(const PagedAttentionParams& params);
void RunReference(const AttentionPlanParams& params);
// The first function computes only the rows that split_attention and merge_attention compute, the
// second one only the rows that prefill_attention computes.
void RunReference(const SplitAttentionParams& params);
void RunReference(const PrefillAttentionParams& params);
void RunReference(const ArgmaxParams& params);

}  // namespace baton
