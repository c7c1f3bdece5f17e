#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// Where a grid's blocks and a block's threads are counted: blocks in three dimensions, threads in
// one.
struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 32;         // of a block; a multiple of 32, at most 1024
  size_t shared_bytes = 0;  // of dynamic shared memory
};

// One kernel as one compiler made it. Its parameters are one trivially copyable struct, passed by
// value. Made by BATON_KERNEL (device_code.h) in a kernel's source, which is compiled once for
// each runtime that there is: a kernel runs only on the runtime that it was compiled for.
struct Kernel {
  const char* name = nullptr;
  // nvcc: the function as cudaLaunchKernel takes it. Emulated: a SimtEntry (simt/simt_entry.h).
  const void* entry = nullptr;
  size_t params_bytes = 0;  // at most 4,000
};

}  // namespace baton
