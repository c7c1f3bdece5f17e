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

// Binds a socket to one address and closes it. Returns 0 or an errno.
int TryBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1, off = 0;
  // Sets SO_REUSEADDR, as servers do. Connections of an earlier server in TIME_WAIT then do not
  // block the port.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const int error = bind(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
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
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  // gRPC can listen on a name if it can bind one of the name's addresses. So one address that can
  // be bound is enough here.
  int first_error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int error = TryBind(*address);
    if (error == 0) return absl::OkStatus();
    if (first_error == 0) first_error = error;
  }
  return ListenError(listen, first_error);
}

}  // namespace baton
