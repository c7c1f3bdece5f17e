// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/vec_portable.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/gemm_inl.h"
#include "kernels/cpu/elementwise_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/bf16_plain_inl.h"
// clang-format on

namespace baton::cpu {

const IsaKernels kPortableKernels = MakeTable("portable");
const Bf16Kernels kAmxOrderPlain = MakePlain(PlainBf16Gemm<AmxOrderDot>);
const Bf16Kernels kPairDotPlain = MakePlain(PlainBf16Gemm<PairDot>);

}  // namespace baton::cpu
