#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/rpc/connection_acceptor.h"
#include "common/rpc/health_service.h"
#include "common/rpc/limits.h"
#include "common/rpc/reflection_service.h"
#include "common/rpc/unknown_methods.h"

namespace baton {

// A gRPC server for the given services, with grpc.health.v1 per service and reflection. It uses
// gRPC's callback API.
class RpcServer {
 public:
  struct Options {
    std::string listen;                    // host:port; port 0 means any free port
    std::vector<grpc::Service*> services;  // must outlive the server
    // Full names of these services. Server reflection lists them.
    std::vector<std::string> names;
    // Age at which a client is asked to open a new connection (GOAWAY), plus or minus a tenth. RPCs
    // on the old connection go on. At least one millisecond.
    absl::Duration connection_age = absl::InfiniteDuration();
    // Outlives the server. If it is null, the server has one of its own, with the default limits.
    Connections* connections = nullptr;
    size_t max_message_bytes = kMaxMessageBytes;  // Longest message that is received.
  };
  // Returns InvalidArgument if `listen` is not host:port. Returns Unavailable, with the message of
  // CheckListen, if the address can't be bound.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options);
  ~RpcServer();

  // Returns the host:port on which this server listens, with the actual port.
  const std::string& address() const { return address_; }
  // Sets the answer of grpc.health.v1 for a service, given by its full name. "" stands for the
  // whole server. Any thread.
  void SetServing(absl::string_view service, bool serving);
  // Stops accepting connections and new RPCs, lets running RPCs finish for at most `grace`, and
  // cancels the rest. Returns when all RPCs have ended.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer() = default;
  std::string address_;
  std::unique_ptr<Connections> own_connections_;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<ReflectionService> reflection_;
  std::unique_ptr<UnknownMethods> unknown_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton
