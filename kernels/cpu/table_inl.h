#pragma once

// Builds the table of an instruction set's kernels. Only kernels_*.cc include this file, after all
// other *_inl.h.
namespace baton::cpu {
namespace {

constexpr IsaKernels MakeTable(const char* name) {
  return {.name = name,
          .gemm = Gemm,
          .gemm_scratch = kGemmScratch,
          .gemm_small = GemmSmall,
          .small_rows = kSmallRows,
          .attend = Attend,
          .attend_span = AttendOneSpan,
          .attend_merge = AttendMerge,
          .attend_scratch = AttendScratch::Floats,
          .attend_partial = AttendPartialFloats,
          .rms_norm = RmsNorm,
          .silu_mul = SiluMul,
          .rotate = Rotate,
          .widen = Widen,
          .narrow = Narrow,
          .exp = ExpRow};
}

}  // namespace
}  // namespace baton::cpu
