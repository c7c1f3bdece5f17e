#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_runtime.h"
#include "kv_transfer/transport.h"

namespace baton {

// A transport whose pools (AllocatePool) lie in the memory of `runtime`'s device. Connections,
// notes and host memory are `inner`'s. A peer's pool is read
//  - by CUDA IPC, where its handle opens here: copies from device to device on a stream of our own,
//    without the peer's help. Link: cuda-ipc (the same device), nvlink or pcie (another one), or
//    peer-device where the runtime can't tell which;
//  - else bounced: the peer copies a run to host memory of `inner`, we read it there, and copy it
//  to
//    our device; several runs at once. Link: inner's. So in one process, as CUDA refuses its own
//    handles, between nodes, and between devices that don't reach one another.
// Which it is shows with the first read of a connection, and is logged.
//
// A read of device memory may go to any memory of the process; one of host memory only to host
// memory. A peer of another kind is refused: addresses and keys of device pools are no others'.
// `runtime` must outlive it. Internal with the runtime's words when the device fails.
absl::StatusOr<std::unique_ptr<Transport>> CreateDeviceTransport(std::unique_ptr<Transport> inner,
                                                                 DeviceRuntime* runtime);

}  // namespace baton
