#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

struct sockaddr_storage;

namespace baton {

// Numbers of connections, of all servers that share one ConnectionCounts.
struct ConnectionCounters {
  int64_t open = 0;            // connections now
  uint64_t accepted = 0;       // connections that were taken
  uint64_t too_many = 0;       // refused: limit of all connections
  uint64_t of_one = 0;         // refused: limit of one address
  uint64_t no_descriptor = 0;  // refused: no descriptor was left, or epoll could watch no more
  uint64_t cut = 0;  // cut: too many RPCs were open or cancelled, or messages were too long
};

// Counts the open connections of one or more servers, and decides which ones are taken. Any thread.
class ConnectionCounts {
 public:
  // Max open connections, and max open connections from one IP address (0: no limit).
  ConnectionCounts(int connections, int per_address)
      : connections_(connections), per_address_(per_address) {}

  enum class Verdict { kTaken, kTooMany, kTooManyOfOneAddress };
  // Enters a connection. If it is taken, it counts until Leave() is called with the same address.
  // An address is what gRPC writes, for example ipv4:127.0.0.1.
  Verdict Enter(const std::string& address);
  void Leave(const std::string& address);
  // Counts a connection that was refused because the process had no descriptor left, or because
  // the kernel lets epoll watch no more descriptors.
  void NoDescriptor();

  // `cut` is 0 here: Connections counts it.
  ConnectionCounters counters() const;

 private:
  const int connections_, per_address_;
  mutable Mutex mutex_;
  ConnectionCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> of_address_ ABSL_GUARDED_BY(mutex_);
};

// Returns the IP address of a peer as gRPC writes it, without port, and sets `port`.
std::string AddressOfPeer(const sockaddr_storage& peer, int* port);

// Returns true for an errno of accept() that says that a resource is used up, and not that the
// connection is at fault.
bool IsOutOfDescriptors(int error);

// Logs connections that were refused for one reason. Writes one line for all that come within ten
// seconds. One thread.
class RefusalLog {
 public:
  explicit RefusalLog(const char* because) : because_(because) {}
  void Refused(absl::string_view peer, absl::Time now);

 private:
  const char* const because_;
  absl::Time logged_at_ = absl::InfinitePast();
  uint64_t not_logged_ = 0;
};

}  // namespace baton
