#include "common/rpc/worker_identity.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/dial.h"
#include "common/rpc/status.h"

namespace baton {

absl::Status CheckWorkerEpoch(WorkerEpoch meant, WorkerEpoch own) {
  if (meant == own) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrFormat("the request is meant for the worker of epoch %016x, but the worker of epoch "
                      "%016x answers at this address",
                      meant, own));
}

WorkerIdentityService::WorkerIdentityService(std::string token, WorkerEpoch epoch)
    : token_(std::move(token)), epoch_(epoch) {}

grpc::ServerUnaryReactor* WorkerIdentityService::Identify(grpc::CallbackServerContext* context,
                                                          const v1::IdentifyRequest*,
                                                          v1::IdentifyResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  response->set_epoch(epoch_);
  reactor->Finish(ToGrpcStatus(CheckToken(*context, token_)));
  return reactor;
}

}  // namespace baton
