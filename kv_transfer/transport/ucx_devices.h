#pragma once

#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace baton {

// The transports that UCX needs beside the others to read memory of CUDA devices, of those that
// this build has and that found a device: cuda_copy, cuda_ipc, gdr_copy, rc. Empty without
// cuda_copy.
std::vector<std::string> UcxDeviceTransports();

// What a context can use. The first function returns the names of its transports, the second one
// the types of memory that it knows, as bits of ucs_memory_type_t.
std::vector<std::string> UcxTransportsOf(ucp_context_h context);
uint64_t UcxMemoryTypesOf(ucp_context_h context);

// Whether peers can read device memory that is registered with such a context. FailedPrecondition
// tells what is missing. Asked for are memory of CUDA and a transport whose reads no host takes
// part in (rc, dc: GPUDirect RDMA). Over the others UCX's reads are copies by the owner's
// processor, and between processes of a node its cuda_ipc does what DeviceTransport does itself.
absl::Status UcxReadsDevices(uint64_t memory_types, absl::Span<const std::string> transports);

}  // namespace baton
