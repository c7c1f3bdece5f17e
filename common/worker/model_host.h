#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "kernels/backend.h"
#include "kernels/cuda/open_device.h"
#include "kernels/kv_layout.h"

namespace baton {

// A worker's model on its backend, and how much KV it can hold.
struct ModelHost {
  struct Options {
    std::string backend = "cpu";    // cpu, cuda, cuda-emulated, fake
    std::string model;              // folder
    int threads = 0;                // 0: all cores this process may use
    std::string numerics = "auto";  // order of sums: see ParseCpuNumerics
    uint64_t kv_bytes = 0;          // of the KV pool
    int block_tokens = 16;
    std::string kv_type = "auto";  // auto, f32, f16, bf16
    int context = 0;               // tokens; 0: the model's, or as much of it as the KV pool holds
    bool cuda_graphs = true;       // CudaBackendOptions::graphs
  };
  // InvalidArgument names the flag; ResourceExhausted shows the arithmetic of what does not fit;
  // FailedPrecondition says what is missing for a device.
  static absl::StatusOr<ModelHost> Open(const Options& options);

  // One line for the log at start: what will be used, and why it fits.
  std::string Describe() const;

  // Whether the KV pool must be memory of `device`.
  bool on_device() const { return device.runtime != nullptr; }

  Options options;
  OpenedDevice device;  // of the cuda backends
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  KvLayout layout;
  int blocks = 0;
  int context = 0;
  std::string numerics_id;  // of the backend, and the type of the KV
};

}  // namespace baton
