#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Returns true for host:port with a port from 0 to 65535. The host may be a name, IPv4, or IPv6 in
// brackets.
bool IsHostPort(absl::string_view address);

// Returns `host_port` with another port. A server that listens on port 0 uses this to announce the
// port it got.
std::string WithPort(absl::string_view host_port, int port);
// Returns the port of host:port, or -1 if `host_port` has no port.
int PortOf(absl::string_view host_port);
// Returns the host of host:port, without the brackets of IPv6.
std::string HostOf(absl::string_view host_port);
// Returns true if the host of `address` (HOST or host:port) stands for every address of a machine
// (0.0.0.0 or ::). A server can listen on such an address, but no client can connect to it.
bool IsAnyAddress(absl::string_view address);

}  // namespace baton
