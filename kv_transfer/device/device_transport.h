#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/device/device_path.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Creates a transport whose pools (AllocatePool) lie in the memory of `runtime`'s device. It passes
// connections, notes and host memory on to `inner`. It reads a peer's pool in the first of these
// ways that works:
// - CUDA IPC: if the pool's handle can be opened here. Link() returns cuda-ipc (same device),
//   nvlink or pcie (another device), or peer-device if the runtime can't tell.
// - Direct: `inner` reads the device memory, if both sides have registered their pools with
//   `inner`. Link() returns the link of `inner`.
// - Bounced: the peer copies a part of its pool to host memory of `inner`. We read that part from
//   there and copy it to our device. Several parts are under way at the same time. Link() returns
//   the link of `inner`. This is the way inside one process (CUDA does not open its own handles),
//   between nodes, and between devices without peer access.
// The first read of a connection picks the way and logs it, with the reasons against the others. If
// `path` is not kAuto, only that way is tried. If it does not work, reads fail with
// FailedPrecondition and the reason (for kDirect, AllocatePool already fails).
//
// A read of device memory may go to any memory of the process. A read of host memory may go only to
// host memory. Peers with another kind of transport are refused, because their addresses and keys
// have another format.
//
// CUDA does not define what happens if memory is freed while another process has it mapped. So the
// destructor, before it frees the pools, asks the readers that reported a mapping to close it. It
// waits for them at most 0.5 s, and logs how many have not closed their mapping by then. Reads of
// these readers end with Unavailable. A process that is killed asks no reader.
//
// `runtime` must outlive the transport. Returns Internal, with the runtime's message, if the device
// fails.
absl::StatusOr<std::unique_ptr<Transport>> CreateDeviceTransport(
    std::unique_ptr<Transport> inner, DeviceRuntime* runtime, DevicePath path = DevicePath::kAuto);

}  // namespace baton
