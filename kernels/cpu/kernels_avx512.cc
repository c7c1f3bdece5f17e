// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/gemm_inl.h"
#include "kernels/cpu/elementwise_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/amx_order_inl.h"
// clang-format on

namespace baton::cpu {

const IsaKernels kAvx512Kernels = MakeTable("avx512");
const Bf16Kernels kAmxOrderAvx512 = MakeAmxOrder("avx512");

}  // namespace baton::cpu
