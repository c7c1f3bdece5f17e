#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_graph.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// The product on the host, in one fixed order of each sum, which depends on k alone. All of it must
// be readable.
void RunEmulatedProduct(const DenseProduct& product);

// That as work on memory of `space`, which must outlive it. Checked arguments, rows at least 1.
// InvalidArgument where the product leaves a piece of memory, now or, as it runs, by then; with
// checks, Internal when it reads weights that nobody has written.
absl::StatusOr<EmulatedWork> EmulatedProductWork(EmulatedAddressSpace* space,
                                                 const DenseProduct& product);

}  // namespace baton
