#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

struct UcxOptions {
  // auto: shared memory to peers that it reaches, TCP to the others. shm, tcp: only that. Or a list
  // as UCX_TLS takes it.
  std::string tls = "auto";
  // Network interfaces, comma-separated, or "all". The wire can name any address of this process's
  // registered memory: only networks that workers alone can reach.
  std::string net_devices = "lo";
  // TCP ports that this process may listen on, FIRST-LAST, at least two of them; empty: any. Each
  // network interface takes two, where TCP is used: UCX's, and that of TcpGreetings.
  std::string ports;
  // RegisterDeviceMemory will be called: with `auto`, UCX's transports for memory of CUDA devices
  // and for RDMA are used too, where it has them.
  bool device_memory = false;
};

// A transport over UCX. Memory is allocated by UCX, so that peers on this machine map it; reads are
// ucp_get, notes eager active messages, and peers are told dead by UCX's error callbacks. UCX's
// environment variables override the settings; the log says which. A peer that TCP leads to is
// connected once each side is known to reach the other; until then its reads and notes wait, and
// where one side does not, they end with Unavailable, which names the address. Unavailable with
// UCX's words when UCX can't start; InvalidArgument for a list of transports that has none it
// knows.
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options);

}  // namespace baton
