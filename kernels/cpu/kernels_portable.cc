// In this order: each uses what is above it.
// clang-format off
#include "kernels/cpu/vec_portable.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/gemm_inl.h"
#include "kernels/cpu/elementwise_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
// clang-format on

namespace baton::cpu {

const IsaKernels kPortableKernels = MakeTable("portable");

}  // namespace baton::cpu
