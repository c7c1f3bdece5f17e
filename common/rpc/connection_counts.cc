#include "common/rpc/connection_counts.h"

#include <cerrno>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace baton {
namespace {

constexpr absl::Duration kLogEvery = absl::Seconds(10);

}  // namespace

ConnectionCounts::Verdict ConnectionCounts::Enter(const std::string& address) {
  MutexLock lock(&mutex_);
  if (counters_.open >= connections_) {
    ++counters_.too_many;
    return Verdict::kTooMany;
  }
  const auto found = of_address_.find(address);
  if (per_address_ > 0 && found != of_address_.end() && found->second >= per_address_) {
    ++counters_.of_one;
    return Verdict::kTooManyOfOneAddress;
  }
  ++of_address_[address];
  ++counters_.open;
  ++counters_.accepted;
  return Verdict::kTaken;
}

void ConnectionCounts::Leave(const std::string& address) {
  MutexLock lock(&mutex_);
  --counters_.open;
  const auto found = of_address_.find(address);
  if (--found->second == 0) of_address_.erase(found);
}

void ConnectionCounts::NoDescriptor() {
  MutexLock lock(&mutex_);
  ++counters_.no_descriptor;
}

ConnectionCounters ConnectionCounts::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

std::string AddressOfPeer(const sockaddr_storage& peer, int* port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(peer);
    *port = ntohs(in6.sin6_port);
    if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
      inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
      // The number of the interface to which an address of the link belongs.
      const std::string scope =
          in6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", in6.sin6_scope_id);
      return absl::StrCat("ipv6:%5B", text, scope, "%5D");
    }
    inet_ntop(AF_INET, &in6.sin6_addr.s6_addr[12], text, sizeof text);
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in&>(peer);
    *port = ntohs(in.sin_port);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  }
  return absl::StrCat("ipv4:", text);
}

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void RefusalLog::Refused(absl::string_view peer, absl::Time now) {
  ++not_logged_;
  if (now - logged_at_ < kLogEvery) return;
  Log(Severity::kWarning, "connection_refused",
      {{"because", because_}, {"peer", peer}, {"connections", not_logged_}});
  logged_at_ = now;
  not_logged_ = 0;
}

}  // namespace baton
