#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend/backend.h"

namespace baton {

// The order in which products are summed (README.md). Each gives a row the same bits in every
// batch, chunk and thread count; one order's results are not the bits of another's.
enum class CpuNumerics {
  kF32,         // float activations: any type of weights
  kAmx,         // activations rounded to bf16 for bf16 weights, in the order of tdpbf16ps
  kAvx512Bf16,  // the same, in the order of vdpbf16ps
};
absl::string_view CpuNumericsName(CpuNumerics numerics);  // f32, amx, avx512-bf16

// What a flag asks for, for a model whose matrices are all of type `weights` or narrower. `auto` is
// the fastest order on this processor that keeps to the accuracy of the weights' type: bf16 orders
// are for bf16 weights alone. `portable` is the one that every x86-64 worker computes at fair
// speed: amx for bf16 weights, f32 for others. InvalidArgument for other words, and for an order
// that does not suit the weights.
absl::StatusOr<CpuNumerics> ParseCpuNumerics(absl::string_view name, DType weights);

struct CpuBackendOptions {
  int threads = 0;  // 0: one per core that this process may use (affinity, container's quota)
  // Which instructions may be used; kAuto: all there are. kPortable is plain C++, slow, and there
  // for tests. Changes no bits.
  enum class Isa { kAuto, kAvx2, kAvx512, kAmx, kPortable } isa = Isa::kAuto;
  CpuNumerics numerics = CpuNumerics::kF32;
};

// The maths on x86-64. Activations are float; weights are used where they lie, at any alignment,
// and no copy of them is kept. Each operation has run when its call returns. The order of every sum
// is fixed, so numerics_id() names the order, and neither threads nor instruction set. K and V are
// rounded to nearest even when written; beyond the largest value of the pool's type they become
// infinite.
//
// InvalidArgument for threads < 0 or > 1024; FailedPrecondition when this processor lacks AVX2,
// FMA and F16C, or the instructions asked for.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace baton
