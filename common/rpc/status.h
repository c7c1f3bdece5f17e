#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace baton {

// absl::Status and grpc::Status use the same code numbers with the same meanings.
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  return status.ok() ? grpc::Status::OK
                     : grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                                    std::string(status.message()));
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                    status.error_message());
}

}  // namespace baton
