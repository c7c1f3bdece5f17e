#pragma once

#include <string>

#include <grpcpp/generic/async_generic_service.h>

#include "common/rpc/connections.h"

namespace baton {

// Answers RPCs of methods that the server does not have, as gRPC would, and counts them for their
// connection.
class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  // `connections` outlives the server.
  explicit UnknownMethods(Connections* connections) : connections_(connections) {}

 private:
  class Call;
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  Connections* const connections_;
};

}  // namespace baton
