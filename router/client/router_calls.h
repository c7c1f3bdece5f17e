#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/mutex.h"

namespace baton {

// The calls of one client to one router, each blocking until it has ended. Calls are made by one
// thread; Stop() may come from any other.
class RouterCalls {
 public:
  // `address` is host:port. Each call ends with DeadlineExceeded `timeout` after it began.
  RouterCalls(const std::string& address, absl::Duration timeout);

  // Cancels the call that is running, and every later one.
  void Stop();

  // Hands over each event as it arrives; a status from `on_event` cancels the call and is returned.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<absl::Status(const v1::GenerateEvent&)>& on_event);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::ListModelsResponse> ListModels();

  // What the router's health service says of Inference, as grpc.health.v1 names it ("SERVING").
  absl::StatusOr<std::string> Health();
  // The same with what ListModels says of it. Both are asked again while they were answered on two
  // sides of a change. Without models where the router does not tell them.
  struct HealthAndModels {
    std::string health;
    v1::ListModelsResponse models;
  };
  absl::StatusOr<HealthAndModels> HealthWithModels();
  // Why the router does not serve, as ListModels says; empty if it serves. The call's status if the
  // router does not answer soon.
  absl::StatusOr<std::string> WhyNotServing();
  // Returns OK once Inference is SERVING; meanwhile the router may be absent or come and go.
  absl::Status WaitUntilServing();

 private:
  // The context of one call, known to Stop() while it lives.
  class Call;

  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace baton
