#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace baton {

struct CpuBackendOptions {
  int threads = 0;  // 0: one per core of the process's affinity mask
  // kAuto takes the widest there is. All give the same bits; kPortable is plain C++, slow, and
  // there for tests.
  enum class Isa { kAuto, kAvx2, kAvx512, kPortable } isa = Isa::kAuto;
};

// The maths on x86-64. Activations are float; weights are used where they lie, at any alignment,
// and widened exactly. Each operation has run when its call returns. The order of every sum is
// fixed, see README.md, so numerics_id() names neither threads nor instruction set. K and V are
// rounded to nearest even when written; beyond the largest value of the pool's type they become
// infinite.
//
// InvalidArgument for threads < 0 or > 1024; FailedPrecondition when this processor lacks AVX2,
// FMA and F16C, or the instructions asked for.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace baton
