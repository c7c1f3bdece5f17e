#include "router/http/http_listener.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/listen_check.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace baton {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// Time for which a listening socket rests if a connection can be neither taken nor refused.
constexpr auto kRestOfListener = std::chrono::milliseconds(100);
// Connections that are accepted before others have their turn.
constexpr int kAcceptsPerTurn = 64;
// The kernel asks a silent client after this many seconds whether it is still there, and again
// after each further number of seconds. After this many questions without answer, it has gone.
constexpr int kAskAfterSeconds = 30, kAskAgainSeconds = 10, kQuestions = 3;

// Bytes that the kernel takes of a connection beyond those that are on their way. Without this
// limit, it takes some megabytes for each client that reads slowly, and these streams go on.
constexpr int kUnsentBytes = 64 << 10;

int OpenSpareDescriptor() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

HttpListener::HttpListener(boost::asio::io_context* io, ConnectionCounts* counts)
    : io_(io), counts_(counts), rest_(*io), spare_(OpenSpareDescriptor()) {}

HttpListener::~HttpListener() {
  if (spare_ >= 0) close(spare_);
}

absl::Status HttpListener::Listen(const std::string& listen) {
  ASSIGN_OR_RETURN(const std::vector<int> sockets, OpenListeners(listen));
  port_ = PortOfSocket(sockets[0]);
  error_code first_error;
  for (const int socket : sockets) {
    std::unique_ptr<Listener> listener(new Listener{.socket = Descriptor(*io_)});
    error_code error;
    listener->socket.assign(socket, error);
    if (error) {
      close(socket);
      first_error = error;
    } else {
      listeners_.push_back(std::move(listener));
    }
  }
  if (!first_error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("can't listen on ", listen, ": ", first_error.message()));
}

void HttpListener::Start(Take take, TooMany too_many) {
  take_ = std::move(take);
  too_many_ = std::move(too_many);
  for (const auto& listener : listeners_) Await(listener.get());
}

void HttpListener::Stop() {
  for (const auto& listener : listeners_) AcceptAll(listener->socket.native_handle());
  listeners_.clear();
  rest_.cancel();
}

void HttpListener::Await(Listener* listener) {
  listener->awaited = true;
  listener->socket.async_wait(Descriptor::wait_read, [this, listener](error_code error) {
    if (error == boost::asio::error::operation_aborted) return;  // Stop() has destroyed it.
    listener->awaited = false;
    if (!error && AcceptAll(listener->socket.native_handle())) return Await(listener);
    Rest();
  });
}

void HttpListener::Rest() {
  if (std::exchange(rests_, true)) return;
  rest_.expires_after(kRestOfListener);
  rest_.async_wait([this](error_code) {
    rests_ = false;
    for (const auto& listener : listeners_) {
      if (!listener->awaited) Await(listener.get());
    }
  });
}

bool HttpListener::AcceptAll(int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Offer(fd, peer);
    } else if (IsOutOfDescriptors(errno)) {
      if (!RefuseWithSpare(listener)) return false;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return true;
    }
  }
  return true;
}

bool HttpListener::RefuseWithSpare(int listener) {
  if (spare_ >= 0) close(spare_);
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC);
  if (fd >= 0) {
    counts_->NoDescriptor();
    close(fd);
  }
  spare_ = OpenSpareDescriptor();
  if (fd < 0) return false;
  int port = 0;
  const std::string address = AddressOfPeer(peer, &port);
  no_descriptor_.Refused(absl::StrCat(address, ":", port), SteadyNow());
  return true;
}

void HttpListener::Offer(int fd, const sockaddr_storage& peer) {
  int port = 0;
  const std::string address = AddressOfPeer(peer, &port);
  const std::string name = absl::StrCat(address, ":", port);
  const ConnectionCounts::Verdict verdict = counts_->Enter(address);
  if (verdict != ConnectionCounts::Verdict::kTaken) {
    too_many_(fd);
    close(fd);
    (verdict == ConnectionCounts::Verdict::kTooMany ? limit_of_all_ : limit_of_one_)
        .Refused(name, SteadyNow());
    return;
  }
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  // Without them, a request would wait on for a client whose machine has vanished.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kAskAfterSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kAskAgainSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
  if (take_(fd, address, port)) return;
  counts_->Leave(address);
  counts_->NoDescriptor();
  not_watched_.Refused(name, SteadyNow());
}

}  // namespace baton
