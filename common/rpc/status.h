#pragma once

#include <grpcpp/impl/codegen/server_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace baton {

// absl::Status and grpc::Status use the same code numbers with the same meanings. Payloads of the
// absl::Status travel as gRPC's details (v1::StatusDetails).
grpc::Status ToGrpcStatus(const absl::Status& status);
// Details that do not parse are dropped.
absl::Status FromGrpcStatus(const grpc::Status& status);

// If the status says when to try again (RetryAfter), adds the trailer kRetryPushback to a call
// whose status has not been sent yet.
void AddRetryPushback(const absl::Status& status, grpc::ServerContextBase* context);

}  // namespace baton
