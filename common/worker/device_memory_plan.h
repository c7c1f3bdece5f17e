#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/engine/step_size.h"
#include "common/model/source/model_config.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Plan of a device's memory, for a worker whose KV pool lies on the device. It is made before
// anything is allocated. So a worker that does not fit ends during its start, and a worker that
// fits never runs out of memory. HostMemoryPlan does the same for pools in host memory.
struct DeviceMemoryPlan {
  struct Part {
    std::string name;
    uint64_t bytes = 0;      // after the device has rounded the allocations up
    std::string flag;        // flag that makes this part smaller; empty if none does
    const char* field = "";  // name of this part's field in the log
  };

  struct Options {
    ModelConfig config;
    KvLayout layout;
    StepSize max;
    int context = 0;                   // in tokens
    std::optional<uint64_t> kv_bytes;  // if empty, the pool takes whatever is left
    double share = 0.9;                // share of the device's memory that may be used
    std::string batch_flag;  // flag that sets how many tokens a step samples; empty if none does
  };
  // Call it before the worker allocates anything on the device. Returns InvalidArgument with the
  // name of a flag whose value can't work. Returns ResourceExhausted if the worker does not fit;
  // the error lists the parts of the plan, the available and the missing bytes, and the flags to
  // lower.
  static absl::StatusOr<DeviceMemoryPlan> Make(const Options& options, DeviceRuntime* device);

  uint64_t together() const;
  // Returns the plan as a table for people, to be printed at start. Every line has its line end.
  std::string Table() const;
  // Returns the numbers of the plan as log fields.
  std::vector<LogField> LogFields() const;

  std::string device;  // name of the device
  uint64_t total_bytes = 0, free_bytes = 0;
  // The worker's share of the memory, or the free memory if that is less.
  uint64_t usable_bytes = 0;
  double share = 0;
  std::vector<Part> parts;  // the KV pool is last
  int blocks = 0;           // number of blocks in the KV pool
};

}  // namespace baton
