#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"

namespace baton {

// A gRPC server of ours: the given services, grpc.health.v1 per service, and reflection. Callback
// API.
class RpcServer {
 public:
  struct Options {
    std::string listen;                    // host:port, port 0 for any free one
    std::vector<grpc::Service*> services;  // outlive the server
    // A peer is asked to connect anew (GOAWAY) once its connection is about that old, give or take
    // a tenth; what runs on it goes on. At least a millisecond.
    absl::Duration connection_age = absl::InfiniteDuration();
  };
  // InvalidArgument when `listen` is not host:port; Unavailable when it can't be bound, with the
  // words of CheckListen.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options);
  ~RpcServer();

  // host:port it listens on, the port filled in.
  const std::string& address() const { return address_; }
  // What grpc.health.v1 says of a service, by its full name; "" is the server as a whole. Any
  // thread.
  void SetServing(absl::string_view service, bool serving);
  // Takes no new RPCs, lets running ones finish for `grace`, cancels the rest, returns when all
  // have ended.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer() = default;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton
