#pragma once

#include <optional>
#include <string>

#include <sys/socket.h>

#include "kv_transfer/transport/byte_packer.h"

namespace baton {

// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  // Reads a sockaddr. Returns nullopt if its family is neither IPv4 nor IPv6.
  static std::optional<SocketAddress> From(const sockaddr_storage& address);
  // Address to which a socket is bound (Of), and address to which a socket is connected (PeerOf).
  static std::optional<SocketAddress> Of(int fd);
  static std::optional<SocketAddress> PeerOf(int fd);
  // Reads the bytes that Pack wrote. Returns nullopt if they are not an address.
  static std::optional<SocketAddress> Unpack(ByteUnpacker* in);

  // Appends kPackedBytes bytes to `out`.
  void Pack(BytePacker* out) const;
  static constexpr size_t kPackedBytes = 1 + 16 + 2;

  // Returns "host:port", with an IPv6 host in brackets.
  std::string ToString() const;
  int port() const;
  SocketAddress WithPort(int port) const;
  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  bool SameHost(const SocketAddress& other) const { return Host() == other.Host(); }

  // The sockaddr, for system calls.
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;

 private:
  SocketAddress() = default;
  std::string Host() const;  // bytes of the IP address, without the port

  sockaddr_storage storage_{};
};

}  // namespace baton
