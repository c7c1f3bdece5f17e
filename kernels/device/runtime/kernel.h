#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// Shape of a launch: the blocks of the grid in three dimensions, and the threads of a block in one.
struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 32;         // per block; a multiple of 32, at most 1024
  size_t shared_bytes = 0;  // dynamic shared memory per block
};

// One kernel as compiled by one compiler. Its parameters are one trivially copyable struct, passed
// by value. BATON_KERNEL (device_code.h) defines it in the kernel's source, which is compiled once
// per runtime. A kernel runs only on the runtime that it was compiled for.
struct Kernel {
  const char* name = nullptr;
  // Points to what the runtime starts. With nvcc, this is the function that cudaLaunchKernel takes.
  // For an emulated kernel, it is a SimtEntry (simt/simt_entry.h).
  const void* entry = nullptr;
  size_t params_bytes = 0;  // at most 4,000
};

}  // namespace baton
