#pragma once

#include "kernels/device/runtime/kernel.h"

namespace baton::emulated_kernels {

// Parameters of the benchmark kernel, in which every thread repeats one operation `times` times.
struct RepeatParams {
  enum Operation {
    kNothing,
    kSyncThreads,
    kSyncWarp,
    kShuffleXor,
    kWarpSum,
    kMma,
    kCopy
  } operation;
  int times = 0;
  const void* in = nullptr;  // 16 bytes
  float* out = nullptr;      // one word per thread
};
extern const Kernel kRepeat;

}  // namespace baton::emulated_kernels
