#include "kv_transfer/transport/tcp_connecting.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace baton {

int WatchSocket(int events, int fd, uint32_t what) {
  epoll_event event{};
  event.events = what;
  event.data.fd = fd;
  if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) == 0) return 0;
  if (errno == EEXIST && epoll_ctl(events, EPOLL_CTL_MOD, fd, &event) == 0) return 0;
  return errno;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

int Socket::Release() { return std::exchange(fd_, -1); }

TcpConnecting::TcpConnecting(int events, const SocketAddress* from, const SocketAddress& to)
    : to_(to),
      socket_(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP)) {
  if (socket_.fd() < 0) {
    Fail(errno);
    return;
  }
  if (from != nullptr) {
    const SocketAddress any = from->WithPort(0);
    if (bind(socket_.fd(), any.data(), any.size()) != 0) {
      Fail(errno);
      return;
    }
  }
  if (const int error = WatchSocket(events, socket_.fd(), EPOLLOUT); error != 0) {
    Fail(error);
    return;
  }
  if (connect(socket_.fd(), to.data(), to.size()) == 0) {
    connected_ = true;
  } else if (errno != EINPROGRESS) {
    Fail(errno);
  }
}

void TcpConnecting::Move() {
  if (connected_ || failed()) return;
  pollfd state = {socket_.fd(), POLLOUT, 0};
  if (poll(&state, 1, 0) <= 0) return;
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) {
    Fail(error);
  } else {
    connected_ = true;
  }
}

void TcpConnecting::Fail(int error) {
  why_ = std::strerror(error);
  socket_.Close();
}

}  // namespace baton
