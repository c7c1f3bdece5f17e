#pragma once

#include <cstdint>
#include <string>

#include "kv_transfer/transport/socket_address.h"

namespace baton {

// Has the epoll descriptor `events` report these events of `fd`, and no others of it.
void WatchSocket(int events, int fd, uint32_t what);

// One socket, closed with it; -1 is none.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }
  void Close();
  int Release();
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One connection that is being made, without blocking.
class TcpConnecting {
 public:
  // From the host of `from`, where one is given. `events` reports when there is something to Move.
  TcpConnecting(int events, const SocketAddress* from, const SocketAddress& to);

  // Finds out how far it is.
  void Move();
  // Stays true after Close.
  bool connected() const { return connected_; }
  bool failed() const { return !why_.empty(); }
  const std::string& why() const { return why_; }  // it failed
  const SocketAddress& to() const { return to_; }
  int fd() const { return socket_.fd(); }
  void Close() { socket_.Close(); }

 private:
  void Fail(int error);

  SocketAddress to_;
  Socket socket_;
  bool connected_ = false;
  std::string why_;
};

}  // namespace baton
