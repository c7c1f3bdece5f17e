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

// The calls of one client to one router. Each call blocks until it has ended, and returns the
// status of the RPC. One thread makes the calls; any thread may call Stop().
class RouterCalls {
 public:
  // `address` is host:port. Each call ends with DeadlineExceeded `timeout` after it began.
  RouterCalls(const std::string& address, absl::Duration timeout);

  // Cancels the call that is running, and every later one. Any thread.
  void Stop();

  // Calls `on_event` on this thread for each event that arrives. If it returns an error, the call
  // is cancelled and returns that error.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<absl::Status(const v1::GenerateEvent&)>& on_event);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::ListModelsResponse> ListModels();

  // Returns the state of Inference that the router's health service reports, by its name in
  // grpc.health.v1 ("SERVING").
  absl::StatusOr<std::string> Health();
  // Result of Health() together with that of ListModels(). Both are asked again if the router
  // changed between the two answers. `models` is empty if ListModels failed.
  struct HealthAndModels {
    std::string health;
    v1::ListModelsResponse models;
  };
  absl::StatusOr<HealthAndModels> HealthWithModels();
  // Returns the reason that ListModels gives why the router does not serve; empty if it serves.
  // Returns the status of the call if the router does not answer within 2 s.
  absl::StatusOr<std::string> WhyNotServing();
  // Returns OK once Inference is SERVING. Meanwhile the router may be absent, or come and go.
  absl::Status WaitUntilServing();

 private:
  // The context of one call. Stop() can cancel it while it lives.
  class Call;

  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace baton
