#pragma once

#include "absl/status/statusor.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa_kernels.h"

namespace baton::cpu {

// The kernels that a backend runs.
struct Dispatch {
  const IsaKernels* f32 = nullptr;
  const Bf16Kernels* bf16 = nullptr;  // null for CpuNumerics::kF32
};

// Returns the kernels for `options`. Returns FailedPrecondition, naming what is missing, if this
// processor lacks the instructions. A bf16 instruction is tested before use: FailedPrecondition
// also if it does not sum in the order that the numerics id stands for.
absl::StatusOr<Dispatch> Choose(const CpuBackendOptions& options);

// Returns true if `kernels` and `plain` give the same bits for a GEMM that is sensitive to the
// order of the sum, to denormals and to rounding.
bool SumsAs(const Bf16Kernels& kernels, const Bf16Kernels& plain);

}  // namespace baton::cpu
