#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

struct UcxOptions {
  // "auto": shared memory to peers that can be reached by it, TCP to all other peers. "shm" or
  // "tcp": only shared memory or only TCP. Any other value is a list as in UCX_TLS.
  std::string tls = "auto";
  // Network interfaces, comma-separated, or "all". Any program that can connect over TCP and speaks
  // UCX's protocol may access all memory of this process, so use only networks that no machine but
  // the workers can reach.
  std::string net_devices = "lo";
  // TCP ports at which this process may listen: "FIRST-LAST", at least two. Empty means any port.
  // With TCP, each network interface needs two ports, one for UCX and one for TcpGreetings.
  std::string ports;
  // True if RegisterDeviceMemory will be called. "auto" then also includes UCX's transports for
  // CUDA memory and RDMA, if there are any.
  bool device_memory = false;
};

// Creates a transport over UCX.
// - UCX allocates the memory, so that peers on this machine can map it.
// - Reads are ucp_get, notes are eager active messages, and UCX's error callbacks report dead
//   peers.
// - UCX's environment variables override `options`; the log names the variables that do.
// - A peer that needs TCP is connected only when each side is known to reach the other. Until then
//   its reads and notes wait. If one side can't reach the other, these reads and notes end with
//   Unavailable, which names the address.
// Returns Unavailable, with UCX's message, if UCX can't start, and InvalidArgument if UCX knows
// none of the transports in the list.
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options);

}  // namespace baton
