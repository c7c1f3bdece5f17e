#pragma once

#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace baton {

// Returns the transports that UCX needs, in addition to others, to read memory of CUDA devices:
// those of cuda_copy, cuda_ipc, gdr_copy and rc that this build of UCX has and that found a device.
// Empty without cuda_copy.
std::vector<std::string> UcxDeviceTransports();

// UcxTransportsOf returns the names of a UCX context's transports. UcxMemoryTypesOf returns the
// types of memory that the context knows, as bits of ucs_memory_type_t.
std::vector<std::string> UcxTransportsOf(ucp_context_h context);
uint64_t UcxMemoryTypesOf(ucp_context_h context);

// Returns OK if peers can read device memory that is registered with a UCX context that knows
// `memory_types` and has `transports`. Otherwise returns FailedPrecondition, which says what is
// missing. Such reads need CUDA memory, and a transport that reads without the owner's processor
// (rc, dc: GPUDirect RDMA). Over the other transports the owner's processor copies the bytes. UCX's
// cuda_ipc does not count: between processes of one node, DeviceTransport itself does the same.
absl::Status UcxReadsDevices(uint64_t memory_types, absl::Span<const std::string> transports);

}  // namespace baton
