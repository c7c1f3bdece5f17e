#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_graph.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Computes the product on the host. The order of each sum is fixed and depends only on k. All
// operands must be readable.
void RunEmulatedGemm(const DenseGemm& gemm);

// Returns the product as work on memory of `space`, which must outlive the work. `product` must be
// checked and have at least one row. Returns InvalidArgument if an operand is not inside one
// allocation. The work checks this again when it runs; with checks, it also returns Internal if it
// reads weights that were never written.
absl::StatusOr<EmulatedWork> EmulatedGemmWork(EmulatedAddressSpace* space, const DenseGemm& gemm);

}  // namespace baton
