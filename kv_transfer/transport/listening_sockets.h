#pragma once

#include <cstdint>
#include <map>

#include "kv_transfer/transport/socket_address.h"

namespace baton {

// Returns the addresses of the TCP sockets at which this process listens, by the inode of each.
std::map<uint64_t, SocketAddress> ListeningSockets();

}  // namespace baton
