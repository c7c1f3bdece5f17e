#pragma once

#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "baton/v1/worker_identity.grpc.pb.h"
#include "common/base/types.h"

namespace baton {

// Returns OK if a request that is meant for the worker of epoch `meant` reached it: `own` is the
// epoch of the process that answers. Otherwise returns Aborted, which no worker returns for another
// reason: the router takes the worker as dead, and tries another one.
absl::Status CheckWorkerEpoch(WorkerEpoch meant, WorkerEpoch own);

// The worker's answer to the question which process it is. Any thread.
class WorkerIdentityService final : public v1::WorkerIdentity::CallbackService {
 public:
  // `token` is the cluster's shared token, which callers must send; "" if there is none.
  WorkerIdentityService(std::string token, WorkerEpoch epoch);

 private:
  grpc::ServerUnaryReactor* Identify(grpc::CallbackServerContext* context,
                                     const v1::IdentifyRequest* request,
                                     v1::IdentifyResponse* response) override;

  const std::string token_;
  const WorkerEpoch epoch_;
};

}  // namespace baton
