#pragma once

#include <cstdint>
#include <map>

#include "kv_transfer/transport/socket_address.h"

namespace baton {

struct ListeningSocket {
  int fd;
  SocketAddress address;
};

// Returns the TCP sockets at which this process listens. The key is the inode of the socket.
std::map<uint64_t, ListeningSocket> ListeningSockets();

}  // namespace baton
