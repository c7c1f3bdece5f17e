#pragma once

// Defines MakeTable. Only kernels_*.cc include this file, after all other *_inl.h.
namespace baton::cpu {
namespace {

// Returns the table of the kernels that were compiled for the including file's instruction set.
// isa_kernels.h says what each of them does. `name` must be a string literal, because the table
// keeps the pointer.
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
