#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// For tests and benches. Opens an emulated device: it runs on the CPU, follows the rules of a GPU,
// and is thousands of times slower. A node has eight of them, with `index` 0 to 7; returns
// FailedPrecondition for any other index. The device's name is "cuda-emulated", and it has
// `memory_bytes` of memory. `fails_after_kernels` is described in EmulatedOptions.
absl::StatusOr<OpenedDevice> OpenEmulatedDevice(size_t memory_bytes, int index = 0,
                                                int64_t fails_after_kernels = 0);

}  // namespace baton
