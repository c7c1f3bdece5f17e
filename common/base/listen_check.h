#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Returns OK if this process can listen on `listen`, HOST:PORT, now. Binds a socket to that address
// and closes it again to find out. Returns InvalidArgument if `listen` is not HOST:PORT. Returns
// Unavailable if the host is unknown, if the address is not one of this machine, or if the port is
// in use or not allowed; the message says which, and what to do. Blocks while the host name is
// resolved.
absl::Status CheckListen(const std::string& listen);

// Listens on `listen`, HOST:PORT, and returns the listening sockets, which do not block and which
// the caller closes. A name may have several addresses: each that can be bound gets a socket, all
// with the same port. 0.0.0.0 and :: take connections by IPv4 and by IPv6 where the machine has
// both. Fails as CheckListen does.
absl::StatusOr<std::vector<int>> OpenListeners(const std::string& listen);

// Returns the port that a socket is bound to.
int PortOfSocket(int fd);

// Returns the Unavailable error that CheckListen gives when bind() fails with `error`, an errno.
absl::Status ListenError(const std::string& listen, int error);

}  // namespace baton
