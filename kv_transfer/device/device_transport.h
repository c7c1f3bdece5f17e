#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/device/device_path.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// A transport whose pools (AllocatePool) lie in the memory of `runtime`'s device. Connections,
// notes and host memory are `inner`'s. A peer's pool is read
//  - by CUDA IPC, where its handle opens here. Link: cuda-ipc (the same device), nvlink or pcie
//    (another one), or peer-device where the runtime can't tell which;
//  - else by `inner`, where both sides have registered their pools with it. Link: inner's;
//  - else bounced: the peer copies a run to host memory of `inner`, we read it there, and copy it
//  to
//    our device; several runs at once. Link: inner's. So in one process, as CUDA refuses its own
//    handles, between nodes, and between devices that don't reach one another.
// Which it is shows with the first read of a connection, and is logged with what stood against the
// others. A path that is asked for is the only one: where there is none, reads (for kDirect
// AllocatePool already) fail with FailedPrecondition and why.
//
// A read of device memory may go to any memory of the process; one of host memory only to host
// memory. A peer of another kind is refused: addresses and keys of device pools are no others'.
//
// CUDA leaves undefined what comes of memory that is freed while another process has it mapped. So
// before a transport is destroyed and its pools are freed, it asks the readers that told it that
// they have mapped them, and waits until they have closed them, for 0.5 s at most; who has not done
// so by then is logged. Their reads end with Unavailable. A process that is killed asks nobody.
//
// `runtime` must outlive it. Internal with the runtime's words when the device fails.
absl::StatusOr<std::unique_ptr<Transport>> CreateDeviceTransport(
    std::unique_ptr<Transport> inner, DeviceRuntime* runtime, DevicePath path = DevicePath::kAuto);

}  // namespace baton
