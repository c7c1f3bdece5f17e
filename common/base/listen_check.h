#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton {

// Returns OK when this process can listen on `listen`, HOST:PORT, at this moment: it binds a socket
// there and closes it again. InvalidArgument when `listen` is not HOST:PORT. Unavailable when the
// host is unknown, no address of this machine, or the port is taken or not allowed; the message
// says which of these it is and what to do. Waits for the resolver of host names.
absl::Status CheckListen(const std::string& listen);

// The Unavailable that CheckListen returns where bind() fails with `error`, an errno.
absl::Status ListenError(const std::string& listen, int error);

}  // namespace baton
