#pragma once

#include <cuda_runtime_api.h>

namespace baton {

// The bodies of handles of a GPU.
struct CudaMemoryHandle {
  char device[16];  // its UUID
  cudaIpcMemHandle_t memory;
};
struct CudaEventHandle {
  cudaIpcEventHandle_t event;
};
inline constexpr char kCudaMaker[] = "cuda----";

}  // namespace baton
