#include "kv_transfer/transport/ucx_address.h"

#include <algorithm>
#include <fstream>

#include <sys/stat.h>

#include "common/base/hash.h"
#include "kv_transfer/transport/byte_packer.h"

namespace baton {
namespace {

// Begins every packed UcxAddress. Stands also for the version of the format: increment it with
// every change.
constexpr uint32_t kMagic = 0xBA70ACC6;
constexpr size_t kMaxPlaces = 64;
constexpr size_t kMaxWays = 16;

uint64_t NamespaceOf(const char* file) {
  struct stat about;
  return stat(file, &about) == 0 ? about.st_ino : 0;
}

bool ShareMemory(const UcxAddress& a, const UcxAddress& b) {
  return a.boot_id == b.boot_id && a.ipc_namespace == b.ipc_namespace &&
         ((a.sysv && b.sysv) || (a.posix && b.posix && a.process_namespace == b.process_namespace));
}

}  // namespace

void NameThisMachine(UcxAddress* address) {
  std::ifstream("/proc/sys/kernel/random/boot_id") >> address->boot_id;
  address->ipc_namespace = NamespaceOf("/proc/self/ns/ipc");
  address->process_namespace = NamespaceOf("/proc/self/ns/pid");
  address->network_namespace = NamespaceOf("/proc/self/ns/net");
}

std::string PackUcxAddress(const UcxAddress& address) {
  BytePacker out;
  out.PutString(address.worker);
  out.PutString(address.boot_id);
  out.Put<uint64_t>(address.ipc_namespace);
  out.Put<uint64_t>(address.process_namespace);
  out.Put<uint64_t>(address.network_namespace);
  out.Put<uint8_t>(address.sysv);
  out.Put<uint8_t>(address.posix);
  out.Put<uint64_t>(address.greeted_as);
  const size_t places = std::min(address.tcp.size(), kMaxPlaces);
  out.Put<uint32_t>(places);
  for (size_t i = 0; i < places; ++i) {
    address.tcp[i].kv.Pack(&out);
    address.tcp[i].greeter.Pack(&out);
  }
  const std::string body = out.Take();
  BytePacker head;
  head.Put<uint32_t>(kMagic);
  head.Put<uint64_t>(Hash64(body));
  return head.Take() + body;
}

absl::StatusOr<UcxAddress> UnpackUcxAddress(absl::string_view bytes) {
  const absl::Status none = absl::InvalidArgumentError("not a UCX worker address");
  ByteUnpacker in(bytes);
  const uint32_t magic = in.Get<uint32_t>();
  const uint64_t sum = in.Get<uint64_t>();
  if (!in.ok() || magic != kMagic ||
      sum != Hash64(bytes.substr(sizeof(uint32_t) + sizeof(uint64_t)))) {
    return none;
  }
  UcxAddress address;
  address.worker = std::string(in.GetString());
  address.boot_id = std::string(in.GetString());
  address.ipc_namespace = in.Get<uint64_t>();
  address.process_namespace = in.Get<uint64_t>();
  address.network_namespace = in.Get<uint64_t>();
  address.sysv = in.Get<uint8_t>() != 0;
  address.posix = in.Get<uint8_t>() != 0;
  address.greeted_as = in.Get<uint64_t>();
  const uint32_t places = in.Get<uint32_t>();
  if (places > kMaxPlaces) return none;
  for (uint32_t i = 0; i < places; ++i) {
    const auto kv = SocketAddress::Unpack(&in);
    const auto greeter = SocketAddress::Unpack(&in);
    if (!kv || !greeter) return none;
    address.tcp.push_back({*kv, *greeter});
  }
  if (!in.at_end()) return none;
  return address;
}

std::vector<TcpWay> TcpWays(const UcxAddress& own, const UcxAddress& peer) {
  std::vector<TcpWay> ways;
  if (ShareMemory(own, peer)) return ways;
  const bool one_network =
      own.boot_id == peer.boot_id && own.network_namespace == peer.network_namespace;
  // Pairs are ordered by the sum of their two indexes, so that with many interfaces the first
  // kMaxWays pairs use several interfaces of each side.
  for (size_t sum = 0; sum + 1 < own.tcp.size() + peer.tcp.size(); ++sum) {
    const size_t min = sum < peer.tcp.size() ? 0 : sum - peer.tcp.size() + 1;
    for (size_t i = min; i <= sum && i < own.tcp.size(); ++i) {
      const TcpPlace& here = own.tcp[i];
      const TcpPlace& there = peer.tcp[sum - i];
      const bool reaches = here.kv.family() == there.kv.family() &&
                           here.kv.is_loopback() == there.kv.is_loopback() &&
                           (one_network || !here.kv.is_loopback());
      if (reaches && ways.size() < kMaxWays) ways.push_back({here.kv, there});
    }
  }
  return ways;
}

}  // namespace baton
