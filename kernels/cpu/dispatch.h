#pragma once

#include "absl/status/statusor.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa_kernels.h"

namespace baton::cpu {

// The kernels that a backend runs.
struct Dispatch {
  const IsaKernels* f32 = nullptr;
  const Bf16Kernels* bf16 = nullptr;  // null with CpuNumerics::kF32
};

// FailedPrecondition names what this processor lacks, or says that its bf16 instruction does not
// sum in the order which the numerics id stands for: that is tried out, not believed.
absl::StatusOr<Dispatch> Choose(const CpuBackendOptions& options);

// True when `kernels` give the bits of `plain` for a product that is sensitive to the order, to
// denormals and to rounding.
bool SumsAs(const Bf16Kernels& kernels, const Bf16Kernels& plain);

}  // namespace baton::cpu
