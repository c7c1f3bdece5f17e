#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/kv_checksums.h"

namespace baton {

// Creates a KvChecksums for a pool in the memory of `runtime`'s device. `kernel`, which is
// kv_checksum compiled for that runtime, computes the checksums on a stream of its own. They are
// reported once they are in host memory. The checksum function differs from the host's. That is
// safe, because a worker with a pool in device memory and one with a pool in host memory have
// different numerics ids and never exchange KV. Returns InvalidArgument if a slice is not a
// multiple of 16 bytes. `runtime` and the pool must outlive the returned object.
absl::StatusOr<std::unique_ptr<KvChecksums>> CreateDeviceKvChecksums(DeviceRuntime* runtime,
                                                                     const Kernel& kernel,
                                                                     const std::byte* pool,
                                                                     const KvLayout& layout);

}  // namespace baton
