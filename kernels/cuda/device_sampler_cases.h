#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/emulated_runtime.h"
#include "kernels/cuda/kernels.h"

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
    const auto runtime = CreateEmulatedRuntime(options);
    if (!runtime.ok()) return runtime.status();
    const absl::Status status = RunDrawCase(runtime->get(), EmulatedKernels(), i);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace baton
