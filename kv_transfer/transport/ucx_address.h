#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/tcp_greetings.h"

namespace baton {

// The address of a UCX transport: a peer needs it to connect, and to know by which way UCX will.
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

// Fills in the boot id and the namespaces of this process.
void NameThisMachine(UcxAddress* address);

std::string PackUcxAddress(const UcxAddress& address);
// InvalidArgument for bytes that are none of this version.
absl::StatusOr<UcxAddress> UnpackUcxAddress(absl::string_view bytes);

// Returns the pairs of network interfaces, one of ours and one of the peer's, over which UCX may
// connect the two by TCP. There are none where the two share memory, which UCX prefers, and none
// where TCP reaches nothing: between loopback interfaces of two machines, and between addresses of
// two families.
std::vector<TcpWay> TcpWays(const UcxAddress& own, const UcxAddress& peer);

}  // namespace baton
