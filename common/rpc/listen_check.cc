#include "common/rpc/listen_check.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"

namespace baton {
namespace {

// The error of binding there, or 0.
int ErrorOfBinding(const addrinfo& address) {
  const int probe = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return errno;
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as servers do
  const int error = bind(probe, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(probe);
  return error;
}

std::string Advice(int error, const std::string& address) {
  const std::string host = HostOf(address);
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat("another program listens on port ", PortOf(address),
                          "; end it, or choose another port (0 takes any free one)");
    case EADDRNOTAVAIL:
      return absl::StrCat(host,
                          " is no address of this machine; choose one of its own (`ip address` "
                          "lists them), 127.0.0.1 for this machine alone, or 0.0.0.0 for all");
    case EACCES:
      return absl::StrCat("port ", PortOf(address),
                          " is reserved for programs with more rights; choose one from 1024 up, or "
                          "give the program CAP_NET_BIND_SERVICE");
    default:
      return strerror(error);
  }
}

}  // namespace

absl::Status CheckListen(const std::string& address) {
  if (!IsHostPort(address)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "listen address '", address, "' is not HOST:PORT with a port from 0 to 65535"));
  }
  const auto refuse = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why));
  };
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failure =
      getaddrinfo(HostOf(address).c_str(), absl::StrCat(PortOf(address)).c_str(), &hints, &list);
  if (failure != 0) {
    return refuse(absl::StrCat("the name ", HostOf(address), " does not resolve (",
                               gai_strerror(failure),
                               "); check its spelling, or give an address such as 127.0.0.1"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, freeaddrinfo);
  // A server listens at all addresses of a name, and one is enough for it.
  int error = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    error = ErrorOfBinding(*one);
    if (error == 0) return absl::OkStatus();
  }
  return refuse(Advice(error, address));
}

}  // namespace baton
