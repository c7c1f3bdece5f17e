#include "common/base/listen_check.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr char kOneOfThisMachine[] =
    "take one that `ip address` lists, 127.0.0.1 for this machine alone, or 0.0.0.0 for all";

// Returns the lowest port that a process may bind without CAP_NET_BIND_SERVICE.
int FirstFreeForAll() {
  std::ifstream file("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  int port = 0;
  return file >> port ? port : IPPORT_RESERVED;
}

absl::Status Refused(const std::string& listen, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", listen, ": ", why));
}

// Returns a socket that is bound to one address, or -1 with errno set.
int Bind(const sockaddr* address, socklen_t length) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  // Sets SO_REUSEADDR, as servers do. Connections of an earlier server in TIME_WAIT then do not
  // block the port.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(fd, address, length) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Returns the addresses of the host of `listen`, HOST:PORT.
absl::StatusOr<Addresses> Resolve(const std::string& listen) {
  if (!IsHostPort(listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", listen, "' is not HOST:PORT with a port from 0 to 65535"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string host = HostOf(listen), port = absl::StrCat(PortOf(listen));
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Refused(listen,
                   absl::StrCat("the name ", host, " can't be resolved here (", gai_strerror(error),
                                "); correct it, or give an address: ", kOneOfThisMachine));
  }
  return Addresses(found, freeaddrinfo);
}

// Sets the port of an IPv4 or IPv6 address.
void SetPort(sockaddr_storage* address, int port) {
  if (address->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

}  // namespace

absl::Status ListenError(const std::string& listen, int error) {
  const int port = PortOf(listen);
  switch (error) {
    case EACCES:
      return Refused(listen, absl::StrCat("port ", port, " needs a right that this process lacks ",
                                          "(CAP_NET_BIND_SERVICE); take a port from ",
                                          FirstFreeForAll(), " on, or 0 for any free one"));
    case EADDRINUSE:
      return Refused(listen, absl::StrCat("port ", port, " is taken by another program, which ",
                                          "`ss -ltnp sport = :", port, "` shows; stop it, or take ",
                                          "another port, or 0 for any free one"));
    case EADDRNOTAVAIL:
      return Refused(listen, absl::StrCat(HostOf(listen), " is not an address of this machine; ",
                                          kOneOfThisMachine));
    default:
      return Refused(listen, absl::StrCat(std::strerror(error), "; ", kOneOfThisMachine));
  }
}

absl::Status CheckListen(const std::string& listen) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(listen));
  // A server can listen on a name if it can bind one of the name's addresses. So one address that
  // can be bound is enough here.
  int first_error = 0;
  for (const addrinfo* address = found.get(); address != nullptr; address = address->ai_next) {
    if (const int fd = Bind(address->ai_addr, address->ai_addrlen); fd >= 0) {
      close(fd);
      return absl::OkStatus();
    }
    if (first_error == 0) first_error = errno;
  }
  return ListenError(listen, first_error);
}

int PortOfSocket(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

absl::StatusOr<std::vector<int>> OpenListeners(const std::string& listen) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(listen));
  std::vector<int> listeners;
  int port = PortOf(listen), first_error = 0;
  const auto open = [&](sockaddr_storage address, socklen_t length) {
    SetPort(&address, port);
    const auto* bound = reinterpret_cast<const sockaddr*>(&address);
    const int fd = Bind(bound, length);
    if (fd < 0 || ::listen(fd, SOMAXCONN) != 0) {
      if (first_error == 0) first_error = errno;
      if (fd >= 0) close(fd);
      return;
    }
    listeners.push_back(fd);
    port = PortOfSocket(fd);  // the other addresses take the port that the first one has got
  };
  if (IsAnyAddress(listen)) {
    sockaddr_storage any{};
    any.ss_family = AF_INET6;
    open(any, sizeof(sockaddr_in6));
  }
  if (listeners.empty()) {
    for (const addrinfo* found_one = found.get(); found_one; found_one = found_one->ai_next) {
      sockaddr_storage address{};
      std::memcpy(&address, found_one->ai_addr, found_one->ai_addrlen);
      open(address, found_one->ai_addrlen);
    }
  }
  if (listeners.empty()) return ListenError(listen, first_error);
  return listeners;
}

}  // namespace baton
