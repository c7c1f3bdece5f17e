#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend/backend.h"

namespace baton {

// The order in which a dot product is summed (README.md). With one order, the bits of a row do not
// depend on the batch, the chunk or the number of threads. Different orders give different bits.
enum class CpuNumerics {
  kF32,         // float activations, weights of any type
  kAmx,         // for bf16 weights, activations are rounded to bf16; order of tdpbf16ps
  kAvx512Bf16,  // for bf16 weights, activations are rounded to bf16; order of vdpbf16ps
  kQ8,          // for quantised weights, activations are rounded to 8 bits (quantised_product.h)
};
absl::string_view CpuNumericsName(CpuNumerics numerics);  // as in the flag

// Parses the value of a flag that chooses the summation order, for a model whose matrices all have
// the format `weights` or one that holds less; a quantised one if any of them is quantised. Any
// thread. Values:
// - `auto`: the fastest summation order on this processor that has the accuracy of the weights'
//   format. Only bf16 weights get a bf16 order, and only quantised ones q8. The first call tests
//   the processor's bf16 instructions.
// - `portable`: the summation order that every x86-64 worker computes at fair speed: amx for bf16
//   weights, q8 for quantised ones, f32 for others.
// - `f32`, `amx`, `avx512-bf16`, `q8`: the summation order of this name.
// Returns InvalidArgument for any other word, if the name is that of a bf16 order but the weights
// are not bf16, and for q8 if they are not quantised. CreateCpuBackend checks whether this
// processor can compute the order.
absl::StatusOr<CpuNumerics> ParseCpuNumerics(absl::string_view name, WeightFormat weights);

struct CpuBackendOptions {
  int threads = 0;  // 0: one per core that this process may use (affinity, container's quota)
  // The instructions that may be used. kAuto allows all that this processor has. kPortable is plain
  // C++, which is slow and meant for tests. The choice never changes the bits of a result.
  enum class Isa { kAuto, kAvx2, kAvx512, kAmx, kPortable } isa = Isa::kAuto;
  CpuNumerics numerics = CpuNumerics::kF32;
};

// Creates the backend for x86-64 CPUs and starts its threads, which the backend stops when it is
// destroyed. Any thread; backend.h says how the backend itself may be called.
// - Activations are float. Weights are used in place, at any alignment, and never copied as a
//   whole.
// - Each operation is complete when its call returns. After an error it has changed nothing.
// - The order of every sum is fixed, so numerics_id() names only that order: results depend neither
//   on the number of threads nor on the instruction set.
// - K and V are rounded to nearest even when written; values beyond the largest one of the pool's
//   type become infinite.
// - The process ends if there is no memory for an operation's intermediate results, or if a thread
//   cannot be started.
//
// Returns InvalidArgument for threads < 0 or > 1024. Returns FailedPrecondition, and starts no
// thread, if this processor lacks AVX2, FMA and F16C or the instructions for `isa` and `numerics`,
// or if its instructions fail the test of dispatch.h. kPortable needs none of these
// instructions.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace baton
