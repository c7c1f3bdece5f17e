#pragma once

#include "absl/status/statusor.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/quantised_kernels.h"

namespace baton::cpu {

// The kernels that a backend runs. They are constants of the program, so the pointers stay valid.
struct Dispatch {
  const IsaKernels* f32 = nullptr;
  const Bf16Kernels* bf16 = nullptr;  // null unless the numerics are those of bf16
  // Null unless the numerics are CpuNumerics::kQ8, and for plain code.
  const QuantisedKernels* quantised = nullptr;
};

// Returns the kernels for `options`. Any thread. Calls SumsAs to test if this processor's bf16
// instructions sum in the documented order, and MultipliesAs to test its tiles of bytes. If tiles
// fail the test, chooses slower instructions. Returns FailedPrecondition, with the reason, if the
// processor lacks the instructions, if vdpbf16ps fails the test, or if AMX's instruction fails the
// test and `options.isa` is kAmx.
absl::StatusOr<Dispatch> Choose(const CpuBackendOptions& options);

// Returns true if `kernels` and `plain` give the same bits for a GEMM that is sensitive to the
// order of the sum, to denormals and to rounding. Any thread. The processor must have the
// instructions of both.
bool SumsAs(const Bf16Kernels& kernels, const Bf16Kernels& plain);
// Returns true if `a` and `b` give the same bits for a GEMM that uses whole tiles, parts of tiles
// and signed and unsigned bytes of all sizes. Otherwise as SumsAs.
bool MultipliesAs(const QuantisedKernels& a, const QuantisedKernels& b);

}  // namespace baton::cpu
