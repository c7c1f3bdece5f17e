#pragma once

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

constexpr int kSampleCases = 40;

// Samples tokens for random sequences on a device, in several steps of which two run at a time.
// Compares tokens, logprobs and errors with those of Sampler. The case's number `i` selects
// variants, so that a run of all cases covers each variant. Returns DataLoss with the difference;
// other errors come from the device.
absl::Status RunSampleCase(DeviceRuntime* runtime, const KernelTable& kernels, int i);

// Runs one case on a checked emulated device of its own. The number of the case is its seed.
inline absl::Status RunSampleCase(int i) {
  ASSIGN_OR_RETURN(const auto runtime,
                   CreateEmulatedRuntime({.seed = static_cast<uint64_t>(i), .check = true}));
  return RunSampleCase(runtime.get(), EmulatedKernels(), i);
}

}  // namespace baton
