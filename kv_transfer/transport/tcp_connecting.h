#pragma once

#include <cstdint>
#include <string>

#include "kv_transfer/transport/socket_address.h"

namespace baton {

// Makes the epoll descriptor `events` report the events `what` of `fd`, and no others of `fd`.
// Returns 0, or the errno of a failure: this user may have reached fs.epoll.max_user_watches, for
// example.
[[nodiscard]] int WatchSocket(int events, int fd, uint32_t what);

// Owns a socket and closes it. The descriptor -1 means that there is no socket.
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

// One TCP connection that is being established, without blocking.
class TcpConnecting {
 public:
  // Starts to connect to `to`. If `from` is not null, the connection comes from the host of `from`.
  // The epoll descriptor `events` must outlive this object. It becomes readable when Move has
  // something to do.
  TcpConnecting(int events, const SocketAddress* from, const SocketAddress& to);

  // Advances the connection without blocking, and updates connected() and failed().
  void Move();
  // Returns true once the connection is established, also after Close.
  bool connected() const { return connected_; }
  bool failed() const { return !why_.empty(); }
  const std::string& why() const { return why_; }  // text of the error, if failed()
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
