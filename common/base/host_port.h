#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// True for host:port with a port from 0 to 65535; the host may be a name, IPv4, or IPv6 in
// brackets.
bool IsHostPort(absl::string_view address);

// host:port with the port replaced: what a server that listens on every address tells others.
std::string WithPort(absl::string_view host_port, int port);
// The port of host:port, or -1.
int PortOf(absl::string_view host_port);
// The host of host:port, without the brackets of IPv6.
std::string HostOf(absl::string_view host_port);
// Whether the host, of HOST or host:port, is every address of a machine (0.0.0.0, ::): a place to
// listen at, and none where anybody can be reached.
bool IsAnyAddress(absl::string_view address);

}  // namespace baton
