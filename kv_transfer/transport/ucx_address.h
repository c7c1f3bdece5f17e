#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/tcp_greetings.h"

namespace baton {

// The address of a UCX transport. A peer needs it to connect, and to predict whether UCX will use
// shared memory or TCP.
struct UcxAddress {
  std::string worker;  // address from ucp_worker_get_address

  // `boot_id` and the namespaces tell on which machine and in which container the worker runs.
  // `sysv` and `posix` are the kinds of shared memory that it has.
  std::string boot_id;
  uint64_t ipc_namespace = 0;
  uint64_t process_namespace = 0;
  uint64_t network_namespace = 0;
  bool sysv = false;
  bool posix = false;

  uint64_t greeted_as = 0;    // TcpGreetings::id of this worker
  std::vector<TcpPlace> tcp;  // listening addresses, one per network interface; empty without TCP
};

// Sets the boot id and the namespaces to those of this process.
void NameThisMachine(UcxAddress* address);

std::string PackUcxAddress(const UcxAddress& address);
// Returns InvalidArgument for bytes that are damaged or have another version.
absl::StatusOr<UcxAddress> UnpackUcxAddress(absl::string_view bytes);

// Returns the pairs of network interfaces, one of ours and one of the peer's, over which UCX may
// connect both workers by TCP. Returns none if the workers share memory, which UCX prefers. Leaves
// out pairs that TCP can't connect: loopback interfaces of two machines, and addresses of two
// families.
std::vector<TcpWay> TcpWays(const UcxAddress& own, const UcxAddress& peer);

}  // namespace baton
