#pragma once

#include <cuda_runtime_api.h>

namespace baton {

// The bodies of the handles that a GPU's runtime exports.
struct CudaMemoryHandle {
  char device[16];  // UUID of the GPU
  cudaIpcMemHandle_t memory;
};
struct CudaEventHandle {
  cudaIpcEventHandle_t event;
};
inline constexpr char kCudaMaker[] = "cuda----";

}  // namespace baton
