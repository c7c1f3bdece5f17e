#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/kv_checksums.h"

namespace baton {

// For a pool in the memory of `runtime`: taken by `kernel` (kv_checksum as compiled for that
// runtime) on a stream of its own, reported when they are in host memory. Another function than the
// host's: workers of unlike pools have unlike numerics ids and never meet. InvalidArgument when a
// slice is not a multiple of 16 bytes. `runtime` and the pool must outlive it.
absl::StatusOr<std::unique_ptr<KvChecksums>> CreateDeviceKvChecksums(DeviceRuntime* runtime,
                                                                     const Kernel& kernel,
                                                                     const std::byte* pool,
                                                                     const KvLayout& layout);

}  // namespace baton
