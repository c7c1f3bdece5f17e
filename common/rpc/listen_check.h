#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton {

// Whether a server of this process could listen at HOST:PORT now. Takes nothing that would last: it
// binds a socket there and closes it. gRPC prints warnings of its own where it can't listen, and
// returns no reason; so servers ask here first.
//
// InvalidArgument: it is not HOST:PORT. Unavailable says why it can't be bound and what to do: the
// name does not resolve, the address is not this machine's, another program listens there, or the
// port needs rights that this process does not have.
absl::Status CheckListen(const std::string& address);

}  // namespace baton
