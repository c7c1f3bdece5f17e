#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/connection_counts.h"
#include "common/rpc/connections.h"

namespace baton {

// Raises this process's soft limit of descriptors to its hard limit.
void RaiseDescriptorLimit();

// Accepts the connections of a gRPC server and hands them over. gRPC 1.51 has an accept loop of its
// own, but after one EMFILE it never accepts again (grpc issue 20418), it takes any number of
// connections, and it can't cut one.
//
// The acceptor has a thread. It keeps a copy of each connection's descriptor in Connections. The
// copy tells when the connection has ended, and by it the connection can be cut.
class ConnectionAcceptor {
 public:
  // Takes ownership of `fd`.
  using HandOver = std::function<void(int fd)>;
  // Called about once per second, on the acceptor's thread.
  using Tick = std::function<void(absl::Time now)>;

  // Listens on `listen`, HOST:PORT. Fails as CheckListen does, and with Internal if the kernel
  // gives no epoll. `connections` outlives the acceptor.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const std::string& listen,
                                                                    Connections* connections);
  // Stops.
  ~ConnectionAcceptor();

  int port() const { return port_; }
  // Starts to accept. Connections that came since Listen() are waiting.
  void Start(HandOver hand_over, Tick tick);
  // Closes the listening sockets. Connections stay. A second call does nothing.
  void Stop();

 private:
  explicit ConnectionAcceptor(Connections* connections) : connections_(connections) {}
  void Run();
  void AcceptAll(int listener, absl::Time now);
  // Uses the spare descriptor to accept and close one connection. Returns false if it can't.
  bool RefuseWithSpare(int listener, absl::Time now);
  // Hands over or refuses a connection that was just accepted.
  void Take(int fd, const sockaddr_storage& address, absl::Time now);

  Connections* const connections_;
  int port_ = 0;
  int epoll_ = -1;
  int stop_ = -1;  // eventfd
  std::vector<int> listeners_;

  // Thread of the acceptor.
  HandOver hand_over_;
  Tick tick_;
  int spare_ = -1;  // closed for a moment to refuse a connection when no descriptor is left
  uint64_t next_key_ = 0;
  RefusalLog too_many_{"too many connections"};
  RefusalLog of_one_{"too many connections from this address"};
  RefusalLog no_descriptor_{"this process has no descriptor left"};
  RefusalLog not_watched_{"epoll can't watch more descriptors (/proc/sys/fs/epoll)"};
  std::thread thread_;
};

}  // namespace baton
