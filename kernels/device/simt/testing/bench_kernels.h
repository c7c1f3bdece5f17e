#pragma once

#include "kernels/device/runtime/kernel.h"

namespace baton::emulated_kernels {

// What the benchmarks time: one operation, `times` times by every thread.
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
  float* out = nullptr;      // a word per thread
};
extern const Kernel kRepeat;

}  // namespace baton::emulated_kernels
