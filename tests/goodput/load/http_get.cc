#include "tests/goodput/load/http_get.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

absl::Status Failure(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Waits until the socket has one of `events`. Returns Unavailable after `deadline`.
absl::Status Await(int fd, short events, absl::Time deadline) {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd one{fd, events, 0};
    const int ready = left_ms <= 0 ? 0 : poll(&one, 1, static_cast<int>(left_ms));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::UnavailableError("no answer in time");
    if (errno != EINTR) return Failure("poll", errno);
  }
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Connect(const Socket& socket, const addrinfo& address, absl::Time deadline) {
  if (socket.fd() < 0) return Failure("socket", errno);
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return Failure("connect", errno);
  RETURN_IF_ERROR(Await(socket.fd(), POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : Failure("connect", error);
}

absl::StatusOr<std::string> Exchange(const Socket& socket, absl::string_view request,
                                     absl::Time deadline) {
  while (!request.empty()) {
    RETURN_IF_ERROR(Await(socket.fd(), POLLOUT, deadline));
    const ssize_t sent = send(socket.fd(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Failure("send", errno);
    if (sent > 0) request.remove_prefix(static_cast<size_t>(sent));
  }
  std::string answer;
  char buffer[16384];
  while (true) {
    RETURN_IF_ERROR(Await(socket.fd(), POLLIN, deadline));
    const ssize_t received = recv(socket.fd(), buffer, sizeof buffer, 0);
    if (received == 0) return answer;
    if (received < 0 && errno != EAGAIN && errno != EINTR) return Failure("recv", errno);
    if (received > 0) answer.append(buffer, static_cast<size_t>(received));
    if (answer.size() > kMaxBytes) return absl::UnavailableError("more than 16 MiB came");
  }
}

// Returns the body of an HTTP answer. If the transfer encoding is chunked, joins the chunks.
absl::StatusOr<std::string> BodyOf(absl::string_view answer) {
  const size_t end = answer.find("\r\n\r\n");
  const absl::string_view head = answer.substr(0, end);
  if (end == answer.npos || !absl::StartsWith(head, "HTTP/1."))
    return absl::UnavailableError("the answer is not HTTP");
  if (head.substr(8, 5) != " 200 " && head.substr(8, 4) != " 200") {
    return absl::UnavailableError(
        absl::StrCat("the answer is '", head.substr(0, head.find('\r')), "'"));
  }
  absl::string_view body = answer.substr(end + 4);
  if (!absl::StrContains(absl::AsciiStrToLower(head), "transfer-encoding: chunked"))
    return std::string(body);
  std::string joined;
  while (true) {
    const size_t line = body.find("\r\n");
    uint32_t bytes = 0;
    if (line == body.npos ||
        !absl::SimpleHexAtoi(body.substr(0, std::min(line, body.find(';'))), &bytes) ||
        body.size() - line - 2 < bytes) {
      return absl::UnavailableError("the answer was cut short");
    }
    if (bytes == 0) return joined;
    absl::StrAppend(&joined, body.substr(line + 2, bytes));
    body.remove_prefix(line + 2 + bytes);
    absl::ConsumePrefix(&body, "\r\n");
  }
}

}  // namespace

std::string HttpUrl::Authority() const {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url) {
  absl::string_view rest = url;
  HttpUrl parsed;
  const auto refuse = [&] {
    return absl::InvalidArgumentError(absl::StrCat("'", url, "' is not http://HOST[:PORT][/PATH]"));
  };
  if (!absl::ConsumePrefix(&rest, "http://")) return refuse();
  const size_t slash = std::min(rest.find('/'), rest.size());
  parsed.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  absl::string_view authority = rest.substr(0, slash);
  absl::string_view port = "80";
  const size_t colon = authority.rfind(':');
  if (colon != authority.npos && !absl::EndsWith(authority, "]")) {
    port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  absl::ConsumePrefix(&authority, "[");
  absl::ConsumeSuffix(&authority, "]");
  uint32_t number = 0;
  if (authority.empty() || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535 ||
      parsed.path.find_first_of(" \r\n") != parsed.path.npos) {
    return refuse();
  }
  parsed.host = std::string(authority);
  parsed.port = std::string(port);
  return parsed;
}

absl::StatusOr<std::string> HttpGet(const HttpUrl& url, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("no address of ", url.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  absl::Status status = absl::UnavailableError("no address");
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const Socket socket(
        ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    status = Connect(socket, *address, deadline);
    if (!status.ok()) continue;
    ASSIGN_OR_RETURN(const std::string answer,
                     Exchange(socket,
                              absl::StrCat("GET ", url.path, " HTTP/1.1\r\nHost: ", url.Authority(),
                                           "\r\nAccept: text/plain\r\nConnection: close\r\n\r\n"),
                              deadline));
    return BodyOf(answer);
  }
  return status;
}

}  // namespace baton
