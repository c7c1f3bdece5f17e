#include "kv_transfer/transport/socket_address.h"

#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kHostBytes = 16;

}  // namespace

std::optional<SocketAddress> SocketAddress::From(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return std::nullopt;
  SocketAddress result;
  result.storage_ = address;
  return result;
}

std::optional<SocketAddress> SocketAddress::Of(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return std::nullopt;
  return From(address);
}

std::optional<SocketAddress> SocketAddress::PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return std::nullopt;
  return From(address);
}

std::optional<SocketAddress> SocketAddress::Unpack(ByteUnpacker* in) {
  const uint8_t version = in->Get<uint8_t>();
  const absl::string_view host = in->GetFixed(kHostBytes);
  const uint16_t port = in->Get<uint16_t>();
  if (!in->ok()) return std::nullopt;
  SocketAddress result;
  if (version == 4) {
    result.storage_.ss_family = AF_INET;
    auto* const to = reinterpret_cast<sockaddr_in*>(&result.storage_);
    std::memcpy(&to->sin_addr, host.data(), sizeof(to->sin_addr));
  } else if (version == 6) {
    result.storage_.ss_family = AF_INET6;
    auto* const to = reinterpret_cast<sockaddr_in6*>(&result.storage_);
    std::memcpy(&to->sin6_addr, host.data(), sizeof(to->sin6_addr));
  } else {
    return std::nullopt;
  }
  return result.WithPort(port);
}

void SocketAddress::Pack(BytePacker* out) const {
  std::string host = Host();
  host.resize(kHostBytes);
  out->Put<uint8_t>(family() == AF_INET ? 4 : 6);
  out->PutFixed(host);
  out->Put<uint16_t>(port());
}

std::string SocketAddress::Host() const {
  if (family() == AF_INET) {
    const auto& host = reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr;
    return {reinterpret_cast<const char*>(&host), sizeof(host)};
  }
  const auto& host = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return {reinterpret_cast<const char*>(&host), sizeof(host)};
}

std::string SocketAddress::ToString() const {
  const std::string host = Host();
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family(), host.data(), text, sizeof(text));
  return family() == AF_INET ? absl::StrCat(text, ":", port())
                             : absl::StrCat("[", text, "]:", port());
}

int SocketAddress::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

SocketAddress SocketAddress::WithPort(int port) const {
  SocketAddress result = *this;
  const in_port_t on_the_wire = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&result.storage_)->sin_port = on_the_wire;
  } else {
    reinterpret_cast<sockaddr_in6*>(&result.storage_)->sin6_port = on_the_wire;
  }
  return result;
}

bool SocketAddress::is_loopback() const {
  const std::string host = Host();
  if (family() == AF_INET) return host[0] == 127;
  return IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(host.data()));
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

}  // namespace baton
