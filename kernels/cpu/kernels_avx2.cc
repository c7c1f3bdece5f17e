// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/gemm_inl.h"
#include "kernels/cpu/elementwise_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/amx_order_inl.h"
#include "kernels/cpu/bytes_avx2.h"
#include "kernels/cpu/quantised_inl.h"
// clang-format on

namespace baton::cpu {

const IsaKernels kAvx2Kernels = MakeTable("avx2");
const Bf16Kernels kAmxOrderAvx2 = MakeAmxOrder("avx2");
const QuantisedKernels kQuantisedAvx2 = QuantisedTable<>("avx2");

}  // namespace baton::cpu
