#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/engine/step_size.h"
#include "common/model/model.h"
#include "common/worker/backend_factory.h"
#include "common/worker/device_memory_plan.h"
#include "common/worker/host_memory_plan.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// A worker's model on its backend, and how much KV it can hold.
struct ModelHost {
  struct Options {
    BackendFactory backend;
    std::string model;              // folder
    int gpu = 0;                    // of those that this process sees; 0 without a device
    int threads = 0;                // 0: all cores this process may use
    std::string numerics = "auto";  // order of sums: see ParseCpuNumerics
    // Weights from this seed (random_weights.h); the folder needs none.
    std::optional<uint64_t> random_weights;
    // Of the KV pool. Nothing: what is left of a device; in host memory by HostMemoryPlan's rules.
    std::optional<uint64_t> kv_bytes;
    // Of pools in host memory, as in HostMemoryPlan.
    double memory_share = HostMemoryPlan::kDefaultShare;
    int max_sequences = 0;
    // What this process may use; nothing: as ReadUsableMemory finds under `memory_root`.
    std::optional<uint64_t> usable_bytes;
    std::string memory_root;
    std::optional<int> block_tokens;  // nothing: 64 on a device, 16 elsewhere
    std::string kv_type = "auto";     // auto, f32, f16, bf16
    // Tokens; 0: the model's, or what the pool holds where that is less.
    int context = 0;
    bool cuda_graphs = true;    // CudaBackendOptions::graphs
    StepSize most = {512};      // whose context does not count
    double device_share = 0.9;  // of a device's memory that may be taken
    std::string batch_flag;     // DeviceMemoryPlan::Options
    int chunk_tokens = 0;       // whole blocks, if that is not 0
    // What will be taken of a device, when it is known and nothing is yet.
    std::function<void(const DeviceMemoryPlan&)> on_plan;
    // The same of host memory.
    std::function<void(const HostMemoryPlan&)> on_host_plan;
    // How far weights are, as LoadProgress::Set; on the thread that calls Open.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_weights;
    // Flags and folder have been checked: what follows takes its time.
    std::function<void()> on_loading;
    // DeviceRuntime::OnFailure, before anything is asked of the device.
    std::function<void(const absl::Status&)> on_device_failure;
  };
  // Plans the memory, then loads; weights that are used where they are mapped are left to
  // PageInWeights. InvalidArgument names the flag; ResourceExhausted shows the arithmetic of what
  // does not fit; FailedPrecondition says what is missing for a device.
  static absl::StatusOr<ModelHost> Open(const Options& options);

  // Reads mapped weights once. Call it when the KV pool has its memory: taking that would push some
  // of them out of the page cache again. Errors as Model::PageIn.
  absl::Status PageInWeights() const;

  // One line for the log at start: what will be used, and why it fits.
  std::string Describe() const;
  // For an engine on this host.
  StepSize most_in_a_step() const;

  // Whether the KV pool must be memory of `device`.
  bool on_device() const { return device.runtime != nullptr; }

  Options options;
  OpenedDevice device;                            // of BackendFactory::open_device
  std::optional<DeviceMemoryPlan> device_memory;  // of that device
  std::optional<HostMemoryPlan> host_memory;      // without a device
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  KvLayout layout;
  int blocks = 0;
  int context = 0;          // tokens that are served
  std::string numerics_id;  // of the backend, and the type of the KV
};

}  // namespace baton
