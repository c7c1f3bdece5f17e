#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/engine/step_size.h"
#include "common/model/model_config.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// The plan of a device's memory for a worker whose KV pool lies there. It is made before anything
// is allocated, so a worker that does not fit says so at once, and one that does never runs out.
// HostMemoryPlan is the same for pools in host memory.
struct DeviceMemoryPlan {
  struct Part {
    std::string name;
    uint64_t bytes = 0;      // with what the device rounds allocations to
    std::string flag;        // that makes it smaller; empty: none does
    const char* field = "";  // its bytes in a log
  };

  struct Options {
    ModelConfig config;
    KvLayout layout;
    StepSize most;
    int context = 0;                   // tokens
    std::optional<uint64_t> kv_bytes;  // nothing: whatever is left
    double share = 0.9;                // of the device's memory that may be taken
    std::string batch_flag;            // that says how many tokens are drawn at once, if one does
  };
  // Nothing of the worker is on the device yet. InvalidArgument names the flag; ResourceExhausted
  // shows every part, what there is, what is missing, and the flags to lower.
  static absl::StatusOr<DeviceMemoryPlan> Make(const Options& options, DeviceRuntime* device);

  uint64_t together() const;
  // For people at start, lines each with their end.
  std::string Table() const;
  // The same for the log.
  std::vector<LogField> LogFields() const;

  std::string device;  // its name
  uint64_t total_bytes = 0, free_bytes = 0;
  uint64_t usable_bytes = 0;  // the share, or what is free of it
  double share = 0;
  std::vector<Part> parts;  // the KV pool last
  int blocks = 0;           // of the KV pool
};

}  // namespace baton
