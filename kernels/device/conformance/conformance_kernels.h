#pragma once

#include <cstdint>

#include "kernels/device/runtime/kernel.h"

namespace baton {

// Parameters of kAdd: to[i] = from[i] + value for i < count. `to` may be `from`.
struct AddParams {
  uint32_t* to = nullptr;
  const uint32_t* from = nullptr;
  uint32_t value = 0;
  int count = 0;
};
constexpr int kAddThreads = 64;  // per block; each thread handles one element

namespace cuda_kernels {
extern const Kernel kAdd;
}
namespace emulated_kernels {
extern const Kernel kAdd;
}

}  // namespace baton
