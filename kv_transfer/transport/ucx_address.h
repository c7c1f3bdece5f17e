#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/tcp_greetings.h"

namespace baton {

// What a peer needs to connect to a UCX transport, and to know how UCX will reach it.
struct UcxAddress {
  std::string worker;  // as ucp_worker_get_address gives it

  // Where the worker runs, and what shared memory it has.
  std::string boot_id;
  uint64_t ipc_namespace = 0;
  uint64_t process_namespace = 0;
  uint64_t network_namespace = 0;
  bool sysv = false;
  bool posix = false;

  uint64_t greeted_as = 0;    // TcpGreetings::id
  std::vector<TcpPlace> tcp;  // where it listens, by network interface; empty without TCP
};

// Fills in what this process has of its own.
void NameThisMachine(UcxAddress* address);

std::string PackUcxAddress(const UcxAddress& address);
// InvalidArgument for bytes that are none of this version.
absl::StatusOr<UcxAddress> UnpackUcxAddress(absl::string_view bytes);

// The pairs of network interfaces, own and the peer's, over which UCX may connect the two by TCP.
// None where they share memory, which UCX prefers, and where TCP reaches nothing: between loopback
// interfaces of two machines, or of two families of addresses.
std::vector<TcpWay> TcpWays(const UcxAddress& own, const UcxAddress& peer);

}  // namespace baton
