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
  // `address` is host:port. Each call ends with DeadlineExceeded `timeout` after it began. Calls of
  // the service Inference carry `api_key`, unless it is empty; the health service needs none.
  RouterCalls(const std::string& address, absl::Duration timeout, std::string api_key = "");

  // Cancels the running call and every later one. Any thread.
  void Stop();
  // Cancels the running call. Returns false if none is running. Any thread.
  bool CancelRunning();

  // Makes a Generate call. Calls `on_event` on this thread for each event. If `on_event` returns an
  // error, the RPC is cancelled and this function returns that error.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<absl::Status(const v1::GenerateEvent&)>& on_event);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::ListModelsResponse> ListModels();

  // Asks the router's health service for the state of the service Inference. Returns the name of
  // that state in grpc.health.v1, for example "SERVING".
  absl::StatusOr<std::string> Health();
  // Result of Health() and of ListModels(). Both calls are repeated if the router's state changed
  // between them. `models` is empty if ListModels failed.
  struct HealthAndModels {
    std::string health;
    v1::ListModelsResponse models;
  };
  absl::StatusOr<HealthAndModels> HealthWithModels();
  // Returns the reason in ListModels why the router does not serve; empty if it serves. If the
  // router does not answer within 2 s, returns the status of the call.
  absl::StatusOr<std::string> WhyNotServing();
  // Returns OK once the service Inference is SERVING. Until then, the router may be absent, or come
  // and go.
  absl::Status WaitUntilServing();

 private:
  // The context of one call. While it exists, Stop() can cancel the call.
  class Call;

  const absl::Duration timeout_;
  const std::string api_key_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace baton
