#pragma once

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

constexpr int kDrawCases = 40;

// Random sequences drawn for on a device, some steps each, two of them under way, against Sampler:
// the same tokens, logprobs and errors. Case `i` chooses what every run must see. DataLoss tells
// what differs; other errors are the device's.
absl::Status RunDrawCase(DeviceRuntime* runtime, const KernelTable& kernels, int i);

// All of them, until one fails, each on an emulated device of its own, with `i` added to the seed.
inline absl::Status RunDrawCases(const EmulatedOptions& device) {
  for (int i = 0; i < kDrawCases; ++i) {
    EmulatedOptions options = device;
    options.seed += i;
    ASSIGN_OR_RETURN(const auto runtime, CreateEmulatedRuntime(options));
    RETURN_IF_ERROR(RunDrawCase(runtime.get(), EmulatedKernels(), i));
  }
  return absl::OkStatus();
}

}  // namespace baton
