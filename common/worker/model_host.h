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

// A worker's model, the backend it runs on, and the amount of KV it can hold.
struct ModelHost {
  struct Options {
    BackendFactory backend;
    std::string model;  // folder of the model
    int gpu = 0;        // number among the GPUs that this process sees; 0 without a device
    int threads = 0;    // 0: all cores that this process may use
    std::string numerics = "auto";  // order in which the CPU adds up sums; see ParseCpuNumerics
    // Seed of random weights (random_weights.h). The folder then needs no weights.
    std::optional<uint64_t> random_weights;
    // Size of the KV pool, in bytes. If empty, a pool on a device takes what is left of the
    // device's memory, and a pool in host memory follows HostMemoryPlan's rules.
    std::optional<uint64_t> kv_bytes;
    // Share of the host's memory, for a worker whose KV pool lies in host memory; see
    // HostMemoryPlan.
    double memory_share = HostMemoryPlan::kDefaultShare;
    int max_sequences = 0;
    // Bytes that this process may use. If empty, ReadUsableMemory computes them from the system's
    // files under the folder `memory_root`.
    std::optional<uint64_t> usable_bytes;
    std::string memory_root;
    std::optional<int> block_tokens;  // if empty: 64 on a device, 16 elsewhere
    std::string kv_type = "auto";     // auto, f32, f16 or bf16
    // Max tokens of a sequence. 0 means the model's context, or the number of tokens that the pool
    // can hold if that number is smaller.
    int context = 0;
    bool cuda_graphs = true;    // see CudaBackendOptions::graphs
    StepSize max = {512};       // the largest step; max.context is ignored
    double device_share = 0.9;  // share of a device's memory that may be used
    std::string batch_flag;     // flag that sets the batch size; see DeviceMemoryPlan::Options
    int chunk_tokens = 0;       // must be a multiple of a block's tokens
    // Called with the plan of a device's memory, before anything is allocated.
    std::function<void(const DeviceMemoryPlan&)> on_plan;
    // Called with the plan of the host's memory.
    std::function<void(const HostMemoryPlan&)> on_host_plan;
    // Called with the progress of loading weights, like LoadProgress::Set, on the thread that calls
    // Open.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_weights;
    // Called when flags and folder have been checked, just before the slow part of Open begins.
    std::function<void()> on_loading;
    // Passed to DeviceRuntime::OnFailure before the device is used.
    std::function<void(const absl::Status&)> on_device_failure;
  };
  // Plans the memory, then loads the model. Weights that are used in their mapped files are read
  // later, by PageInWeights. Returns InvalidArgument with the name of a bad flag, ResourceExhausted
  // with the arithmetic of what does not fit, or FailedPrecondition with what is missing for a
  // device.
  static absl::StatusOr<ModelHost> Open(const Options& options);

  // Reads mapped weights once. Call it after the KV pool has got its memory, because allocating the
  // pool could push weights out of the page cache again. Fails like Model::PageIn.
  absl::Status PageInWeights() const;

  // Returns one line for the log at start: what will be used, and why it fits.
  std::string Describe() const;
  // Returns the largest step, for making an engine on this host.
  StepSize max_step() const;

  // Returns true if the KV pool must be memory of `device`.
  bool on_device() const { return device.runtime != nullptr; }

  Options options;
  OpenedDevice device;                            // from BackendFactory::open_device
  std::optional<DeviceMemoryPlan> device_memory;  // set if there is a device
  std::optional<HostMemoryPlan> host_memory;      // set if there is no device
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  KvLayout layout;
  int blocks = 0;
  int context = 0;          // max tokens of a sequence
  std::string numerics_id;  // id of the backend's numerics, and the type of the KV
};

}  // namespace baton
