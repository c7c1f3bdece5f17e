#include "kv_transfer/transport/ucx_sockets.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <ucs/sys/sock.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "kv_transfer/transport/socket_address.h"
#include "kv_transfer/transport/ucx_own.h"

namespace baton {
namespace {

// Time for which the kernel holds a connection back while no bytes arrive. A worker of ours sends
// its request at once; if it is stopped for longer than this, UCX connects again.
constexpr int kFirstBytesWithinSeconds = 5;
// Max connections that one call of ucs_socket_accept drops. UCX's thread, which makes the call,
// also has other work to do.
constexpr int kDropsPerCall = 16;
constexpr absl::Duration kLogEvery = absl::Seconds(1);

// The bytes with which UCX opens a connection, in the order of the wire. The numbers have the byte
// order of the host, so UCX connects only hosts of the same kind. This format has not changed from
// UCX 1.13 to 1.22 (uct/tcp/tcp.h, uct_tcp_cm_send_event).
struct [[gnu::packed]] Opening {
  uint64_t magic;
  uint8_t message;  // the kind of message
  uint32_t bytes;   // length of the rest
  uint32_t event;
  uint8_t flags;
  uint64_t connection;     // number of the connection, from 0 for each pair of workers
  union [[gnu::packed]] {  // address at which the peer's UCX listens
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  };
};
constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint8_t) + sizeof(uint32_t);
constexpr uint64_t kMagic = 0xCAFEBABE12345678;
constexpr uint8_t kConnectionMessage = 32;
constexpr uint32_t kRequestEvent = 1;

// Returns true if `opening`, of which `bytes` have arrived at a socket with an address of `family`,
// is a request to connect that UCX understands.
bool IsWellFormed(const Opening& opening, size_t bytes, int family) {
  const size_t want =
      offsetof(Opening, ipv4) + (family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return bytes >= want && opening.magic == kMagic && opening.message == kConnectionMessage &&
         opening.bytes == want - kHeadBytes && opening.event == kRequestEvent &&
         opening.flags == 0 && opening.connection <= UINT32_MAX &&
         opening.ipv4.sin_family == family && opening.ipv4.sin_port != 0;
}

// Lets an event be logged once in kLogEvery, and counts how often it was not logged. Any thread.
class LogLimit {
 public:
  // Returns nullopt if the event must not be logged now. Otherwise returns how often that was so
  // since it was logged last.
  std::optional<int64_t> MayLog() {
    const int64_t now = absl::ToUnixMillis(SteadyNow());
    int64_t until = quiet_until_.load();
    if (now < until ||
        !quiet_until_.compare_exchange_strong(until, now + absl::ToInt64Milliseconds(kLogEvery))) {
      ++not_logged_;
      return std::nullopt;
    }
    return not_logged_.exchange(0);
  }

 private:
  std::atomic<int64_t> quiet_until_{0}, not_logged_{0};
};

std::string AddressOf(int fd) {
  const auto here = SocketAddress::Of(fd);
  return here ? here->ToString() : "unknown";
}

void LogGarbage(const sockaddr_storage& from, int fd, absl::string_view bytes) {
  static LogLimit limit;
  const std::optional<int64_t> more = limit.MayLog();
  if (!more) return;
  const auto peer = SocketAddress::From(from);
  Log(Severity::kWarning, "kv_garbage_dropped",
      {{"from", peer ? peer->ToString() : "unknown"},
       {"at", AddressOf(fd)},
       {"begins", absl::BytesToHexString(bytes)},
       {"more_since_the_last_line", *more}});
}

void LogNotTaken(int listener, int error) {
  static LogLimit limit;
  const std::optional<int64_t> more = limit.MayLog();
  if (!more) return;
  Log(Severity::kWarning, "kv_connection_not_taken",
      {{"at", AddressOf(listener)},
       {"why", std::strerror(error)},
       {"more_since_the_last_line", *more}});
}

// A descriptor that is closed for a moment to take a connection when no other one is left, or -1.
// While a thread uses it, other threads see -1. If another thread takes the descriptor in this
// moment, UCX's thread tries again and again until one is free.
std::atomic<int> spare_fd{-1};

void OpenSpare() {
  if (spare_fd.load() >= 0) return;
  const int opened = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int none = -1;
  if (opened >= 0 && !spare_fd.compare_exchange_strong(none, opened)) close(opened);
}

// Takes the connection that has waited longest at `listener`, and closes it, when no descriptors
// are left. If it stayed there, it would wake UCX's thread without end. Returns 0, or the error:
// EAGAIN if no connection waits, EMFILE if there is no spare descriptor.
int DropWithSpare(int listener) {
  const int spare = spare_fd.exchange(-1);
  if (spare < 0) return EMFILE;
  close(spare);
  const int taken = accept(listener, nullptr, nullptr);
  const int error = taken < 0 ? errno : 0;
  if (taken >= 0) close(taken);
  OpenSpare();
  return error;
}

// Returns true if the connection begins with a well-formed request. Otherwise logs it, unless it
// ended without any bytes, as the connections of TcpGreetings do.
bool BeginsWell(const sockaddr_storage& from, int fd) {
  Opening opening{};
  const ssize_t got = recv(fd, &opening, sizeof(opening), MSG_PEEK | MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
  const size_t bytes = got < 0 ? 0 : static_cast<size_t>(got);
  const auto here = SocketAddress::Of(fd);
  if (here && IsWellFormed(opening, bytes, here->family())) return true;
  LogGarbage(from, fd, {reinterpret_cast<const char*>(&opening), bytes});
  return false;
}

#if UCP_API_VERSION < UCP_VERSION(1, 14)
// UCX 1.13 handles all messages that it got with one read of a connection. If one of them makes it
// connect to the peer, it may use the same connection for that. It then moves the messages behind
// that one to another buffer, and goes on with the old buffer, which is null by now
// (uct_tcp_ep_progress_am_rx; UCX 1.14 tests for this). Such a message is a check of an endpoint
// that was closed here. Several of them pile up when the network fails, or when a worker gets no
// processor for some seconds.
//
// Only wire-up messages make UCX connect. So each read ends with the first one, and no messages
// are left to move. Reads are only made shorter: an error here can't change what UCX receives.

constexpr size_t kHeaderBytes = 5;     // kind of the message (1 byte), length of the rest (4)
constexpr size_t kPeekedBytes = 1024;  // has the headers of many short messages
constexpr uint8_t kWireUpMessage = 1;
constexpr uint8_t kPutMessage = 33;  // has more bytes than its length; UCX seldom sends it
constexpr uint64_t kEndless = UINT64_MAX - 1;
constexpr int kMaxFd = 1 << 16;  // connections with higher numbers are read as UCX does
constexpr uint64_t kNotFollowed = 0;
// Bytes of each connection that belong to messages known from their headers and that UCX has not
// read yet, plus one; or kNotFollowed.
std::atomic<uint64_t> known_of[kMaxFd];

void Follow(int fd, uint64_t known) {
  if (fd >= 0 && fd < kMaxFd) known_of[fd].store(known + 1, std::memory_order_relaxed);
}

struct Messages {
  uint64_t bytes = 0;  // 0 if the connection has ended: UCX then finds out the reason
  bool last = true;    // UCX must handle them before it reads more
};

// Looks at the messages that come next, up to a wire-up message. Returns nullopt if not even the
// header of the first one is here.
std::optional<Messages> NextMessages(int fd) {
  uint8_t peeked[kPeekedBytes];
  for (bool ended = false;; ended = true) {
    const ssize_t got = recv(fd, peeked, sizeof(peeked), MSG_PEEK | MSG_DONTWAIT);
    Messages next;
    while (got >= 0 && next.bytes + kHeaderBytes <= static_cast<uint64_t>(got)) {
      const uint8_t* const header = peeked + next.bytes;
      uint32_t rest = 0;
      std::memcpy(&rest, header + 1, sizeof(rest));
      if (*header == kPutMessage) return Messages{kEndless, true};
      next.bytes += kHeaderBytes + rest;
      next.last = *header == kWireUpMessage;
      if (next.last) break;
    }
    if (next.bytes > 0) return next;
    pollfd end = {fd, POLLRDHUP, 0};
    if (ended) return Messages{};
    if (poll(&end, 1, 0) == 0) return std::nullopt;
  }
}

// Works like `ucx`, which is ucs_socket_recv_nb, but ends with the first wire-up message.
ucs_status_t ReadToWireUp(int fd, void* data, size_t* length, decltype(&ucs_socket_recv_nb) ucx) {
  const uint64_t state = fd >= 0 && fd < kMaxFd ? known_of[fd].load() : kNotFollowed;
  if (state == kNotFollowed) return ucx(fd, data, length);
  uint64_t known = state - 1;
  const size_t room = std::exchange(*length, 0);
  for (bool last = true; *length < room;) {
    if (known == 0) {
      const auto next = NextMessages(fd);
      if (!next) return *length > 0 ? UCS_OK : UCS_ERR_NO_PROGRESS;
      known = next->bytes;
      last = next->last;
    }
    size_t bytes = room - *length;
    if (known > 0) bytes = std::min<uint64_t>(bytes, known);
    const ucs_status_t status = ucx(fd, static_cast<char*>(data) + *length, &bytes);
    if (status == UCS_OK) {
      *length += bytes;
      known -= std::min<uint64_t>(known, bytes);
    }
    Follow(fd, known);
    if (status != UCS_OK) return *length > 0 ? UCS_OK : status;
    if (last || known > 0) break;
  }
  return UCS_OK;
}
#endif

}  // namespace

void GuardUcxListener(int listener) {
  OpenSpare();
  // If this fails, connections whose first bytes come late are dropped, and UCX connects again.
  (void)setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &kFirstBytesWithinSeconds,
                   sizeof(kFirstBytesWithinSeconds));
}

}  // namespace baton

extern "C" {

// UCX's own version only calls accept() too. If that fails for any other reason than that nothing
// waits, UCX closes the listener, and the worker can't be connected any more. So no other failure
// is returned, although many pass: no free descriptors, too little memory, a peer that has gone.
ucs_status_t ucs_socket_accept(int fd, struct sockaddr* addr, socklen_t* length_ptr,
                               int* accept_fd) {
  const socklen_t room = *length_ptr;
  baton::OpenSpare();
  for (int i = 0; i < baton::kDropsPerCall; ++i) {
    *length_ptr = room;
    *accept_fd = accept(fd, addr, length_ptr);
    if (*accept_fd < 0) {
      const int error = errno;
      // Without descriptors, accept() does not say whether a connection waits.
      const bool full = error == EMFILE || error == ENFILE;
      const int left = full ? baton::DropWithSpare(fd) : error;
      if (left == EAGAIN || left == EINTR) return UCS_ERR_NO_PROGRESS;
      baton::LogNotTaken(fd, error);
      if (left != 0) return UCS_ERR_NO_PROGRESS;
      continue;
    }
    sockaddr_storage from{};
    std::memcpy(&from, addr, std::min<size_t>(*length_ptr, sizeof(from)));
    if (baton::BeginsWell(from, *accept_fd)) {
#if UCP_API_VERSION < UCP_VERSION(1, 14)
      baton::Follow(*accept_fd, sizeof(baton::kMagic));  // UCX reads the magic number by itself
#endif
      return UCS_OK;
    }
    close(*accept_fd);
  }
  return UCS_ERR_NO_PROGRESS;  // UCX calls again, because connections still wait
}

#if UCP_API_VERSION < UCP_VERSION(1, 14)
ucs_status_t ucs_socket_connect(int fd, const struct sockaddr* dest_addr) {
  static const auto ucx = baton::UcxsOwn(&ucs_socket_connect, "ucs_socket_connect");
  baton::Follow(fd, 0);
  return ucx(fd, dest_addr);
}

ucs_status_t ucs_socket_recv_nb(int fd, void* data, size_t* length_p) {
  static const auto ucx = baton::UcxsOwn(&ucs_socket_recv_nb, "ucs_socket_recv_nb");
  return baton::ReadToWireUp(fd, data, length_p, ucx);
}
#endif

}  // extern "C"
