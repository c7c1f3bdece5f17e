#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton {

// Returns OK if this process can listen on `listen`, HOST:PORT, now. Binds a socket to that address
// and closes it again to find out. Returns InvalidArgument if `listen` is not HOST:PORT. Returns
// Unavailable if the host is unknown, if the address is not one of this machine, or if the port is
// in use or not allowed; the message says which, and what to do. Blocks while the host name is
// resolved.
absl::Status CheckListen(const std::string& listen);

// Returns the Unavailable error that CheckListen gives when bind() fails with `error`, an errno.
absl::Status ListenError(const std::string& listen, int error);

}  // namespace baton
