#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// For tests and benches. Opens an emulated device: a CPU that keeps the rules of a GPU and computes
// thousands of times more slowly. The node has eight of them, numbered by `index`. Its name is
// "cuda-emulated", and it has `memory_bytes`. `fails_after_kernels`: see EmulatedOptions. Returns
// FailedPrecondition for an index that no device has.
absl::StatusOr<OpenedDevice> OpenEmulatedDevice(size_t memory_bytes, int index = 0,
                                                int64_t fails_after_kernels = 0);

}  // namespace baton
