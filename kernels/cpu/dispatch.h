#pragma once

#include "absl/status/statusor.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa_kernels.h"

namespace baton::cpu {

// The kernels that a backend runs. They are constants of the program, so the pointers stay valid.
struct Dispatch {
  const IsaKernels* f32 = nullptr;
  const Bf16Kernels* bf16 = nullptr;  // null for CpuNumerics::kF32
};

// Returns the kernels for `options`. Any thread. Returns FailedPrecondition, naming what is
// missing, if this processor lacks the instructions. Before a bf16 instruction is used, SumsAs
// tests whether it sums in the documented order. If tdpbf16ps does not, slower instructions compute
// the same order, or the result is FailedPrecondition if `options.isa` is kAmx. If vdpbf16ps does
// not, the result is FailedPrecondition.
absl::StatusOr<Dispatch> Choose(const CpuBackendOptions& options);

// Returns true if `kernels` and `plain` give the same bits for a GEMM that is sensitive to the
// order of the sum, to denormals and to rounding. Any thread. The processor must have the
// instructions of both.
bool SumsAs(const Bf16Kernels& kernels, const Bf16Kernels& plain);

}  // namespace baton::cpu
