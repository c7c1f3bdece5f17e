#pragma once

#include "kernels/cuda/device_runtime.h"

namespace baton {

// The product on the host, in one fixed order of each sum, which depends on k alone. All of it must
// be readable.
void RunEmulatedProduct(const DenseProduct& product);

}  // namespace baton
