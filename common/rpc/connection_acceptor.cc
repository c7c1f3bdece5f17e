#include "common/rpc/connection_acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/listen_check.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
// Time for which the listening sockets rest if a connection can be neither taken nor refused.
constexpr absl::Duration kRest = absl::Milliseconds(100);
// Values of epoll_event.data. A key of a connection is its number plus kFirstConnection.
constexpr uint64_t kStop = 0, kFirstListener = 1, kFirstConnection = 1 << 16;

bool Watch(int epoll, int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

void RaiseDescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(
    const std::string& listen, Connections* connections) {
  auto acceptor = std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(connections));
  ASSIGN_OR_RETURN(acceptor->listeners_, OpenListeners(listen));
  acceptor->port_ = PortOfSocket(acceptor->listeners_[0]);
  acceptor->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  acceptor->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  acceptor->spare_ = OpenSpare();
  bool watched = Watch(acceptor->epoll_, acceptor->stop_, EPOLLIN, kStop);
  for (size_t i = 0; i < acceptor->listeners_.size(); ++i) {
    watched &= Watch(acceptor->epoll_, acceptor->listeners_[i], EPOLLIN, kFirstListener + i);
  }
  if (!watched) {
    return absl::InternalError(
        absl::StrCat("can't listen on ", listen, ": ", std::strerror(errno)));
  }
  return acceptor;
}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
  for (const int fd : {epoll_, stop_, spare_}) {
    if (fd >= 0) close(fd);
  }
}

void ConnectionAcceptor::Start(HandOver hand_over, Tick tick) {
  hand_over_ = std::move(hand_over);
  tick_ = std::move(tick);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "accept");
    Run();
  });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  for (const int listener : listeners_) close(listener);
  listeners_.clear();
}

void ConnectionAcceptor::Run() {
  absl::Time next_tick = SteadyNow() + kTick;
  while (true) {
    epoll_event events[64];
    const absl::Duration until_tick = std::max(absl::ZeroDuration(), next_tick - SteadyNow());
    const absl::Duration rest =
        connections_->open() == 0 ? until_tick : std::min(until_tick, Connections::kLook);
    const int count =
        epoll_wait(epoll_, events, 64, static_cast<int>(absl::ToInt64Milliseconds(rest)) + 1);
    const absl::Time now = SteadyNow();
    if (now >= next_tick) {
      tick_(now);
      next_tick = now + kTick;
    }
    connections_->CutIfUnfinished(now);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStop) return;
      if (key < kFirstConnection) {
        AcceptAll(listeners_[key - kFirstListener], SteadyNow());
      } else {
        connections_->Leave(key);  // both directions are closed
      }
    }
  }
}

void ConnectionAcceptor::AcceptAll(int listener, absl::Time now) {
  // After some connections, the loop looks for ends of others.
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&address), &length,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Take(fd, address, now);
    } else if (IsOutOfDescriptors(errno)) {
      if (RefuseWithSpare(listener, now)) continue;
      pollfd stopped = {.fd = stop_, .events = POLLIN, .revents = 0};
      poll(&stopped, 1, static_cast<int>(absl::ToInt64Milliseconds(kRest)));
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

bool ConnectionAcceptor::RefuseWithSpare(int listener, absl::Time now) {
  if (spare_ >= 0) close(spare_);
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC);
  if (fd >= 0) {
    connections_->NoDescriptor();
    close(fd);
  }
  spare_ = OpenSpare();
  if (fd < 0) return false;
  int port = 0;
  const std::string address = AddressOfPeer(from, &port);
  no_descriptor_.Refused(absl::StrCat(address, ":", port), now);
  return true;
}

void ConnectionAcceptor::Take(int fd, const sockaddr_storage& from, absl::Time now) {
  int port = 0;
  const std::string address = AddressOfPeer(from, &port);
  const uint64_t key = kFirstConnection + next_key_++;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  RefusalLog* refusals = nullptr;
  if (copy < 0) {
    connections_->NoDescriptor();
    refusals = &no_descriptor_;
  } else {
    switch (connections_->Enter(key, address, port, copy)) {
      case Connections::Verdict::kTaken:
        break;
      case Connections::Verdict::kTooMany:
        refusals = &too_many_;
        break;
      case Connections::Verdict::kTooManyOfOneAddress:
        refusals = &of_one_;
        break;
    }
  }
  if (refusals != nullptr) {
    if (copy >= 0) close(copy);
    close(fd);
    return refusals->Refused(absl::StrCat(address, ":", port), now);
  }
  // gRPC sets these on the connections that it accepts itself.
  const int on = 1, user_timeout = kKeepaliveTimeoutMs;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof user_timeout);
  // Without other events, epoll tells only of errors and of the end of both directions. It tells of
  // them once: until gRPC has closed its descriptor, the connection stays in epoll although the
  // copy is closed.
  if (!Watch(epoll_, copy, EPOLLONESHOT, key)) {
    connections_->Leave(key);
    connections_->NoDescriptor();
    close(fd);
    return not_watched_.Refused(absl::StrCat(address, ":", port), now);
  }
  hand_over_(fd);
}

}  // namespace baton
