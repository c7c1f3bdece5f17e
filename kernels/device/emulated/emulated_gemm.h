#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_graph.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Computes the GEMM on the host. The order of each sum is fixed and depends only on k. All operands
// must be readable.
void RunEmulatedGemm(const DenseGemm& gemm);

// Returns the GEMM as an item of work on memory of `space`, which must outlive the work. The
// arguments of `gemm` must have been checked, and `gemm` must have at least one row. Returns
// InvalidArgument if an operand is not inside one allocation. When the work runs, it checks the
// operands again. If space->check() is true, the work returns Internal for weights that were never
// written.
absl::StatusOr<EmulatedWork> EmulatedGemmWork(EmulatedAddressSpace* space, const DenseGemm& gemm);

}  // namespace baton
