#include "router/client/router_calls.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace baton {
namespace {

using HealthResponse = grpc::health::v1::HealthCheckResponse;

grpc::health::v1::HealthCheckRequest AboutInference() {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(v1::Inference::service_full_name());
  return request;
}

}  // namespace

class RouterCalls::Call {
 public:
  Call(RouterCalls* calls, absl::Time deadline) : calls_(calls) {
    if (deadline != absl::InfiniteFuture()) context_.set_deadline(absl::ToChronoTime(deadline));
    MutexLock lock(&calls_->mutex_);
    calls_->running_ = &context_;
    if (calls_->stopped_) context_.TryCancel();
  }
  ~Call() {
    MutexLock lock(&calls_->mutex_);
    calls_->running_ = nullptr;
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  RouterCalls* const calls_;
  grpc::ClientContext context_;
};

RouterCalls::RouterCalls(const std::string& address, absl::Duration timeout, std::string api_key)
    : timeout_(timeout),
      api_key_(std::move(api_key)),
      channel_(Dial(address)),
      stub_(v1::Inference::NewStub(channel_)) {}

void RouterCalls::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  if (running_ != nullptr) running_->TryCancel();
}

bool RouterCalls::CancelRunning() {
  MutexLock lock(&mutex_);
  if (running_ != nullptr) running_->TryCancel();
  return running_ != nullptr;
}

absl::Status RouterCalls::Generate(
    const v1::GenerateRequest& request,
    const std::function<absl::Status(const v1::GenerateEvent&)>& on_event) {
  Call call(this, SystemNow() + timeout_);
  AddToken(call.context(), api_key_);
  const auto stream = stub_->Generate(call.context(), request);
  absl::Status refused;
  v1::GenerateEvent event;
  while (refused.ok() && stream->Read(&event)) refused = on_event(event);
  if (!refused.ok()) call.context()->TryCancel();
  const absl::Status status = FromGrpcStatus(stream->Finish());
  return refused.ok() ? status : refused;
}

absl::StatusOr<v1::TokenizeResponse> RouterCalls::Tokenize(const v1::TokenizeRequest& request) {
  Call call(this, SystemNow() + timeout_);
  AddToken(call.context(), api_key_);
  v1::TokenizeResponse response;
  const grpc::Status status = stub_->Tokenize(call.context(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> RouterCalls::Detokenize(
    const v1::DetokenizeRequest& request) {
  Call call(this, SystemNow() + timeout_);
  AddToken(call.context(), api_key_);
  v1::DetokenizeResponse response;
  const grpc::Status status = stub_->Detokenize(call.context(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<v1::ListModelsResponse> RouterCalls::ListModels() {
  Call call(this, SystemNow() + timeout_);
  AddToken(call.context(), api_key_);
  v1::ListModelsResponse response;
  const grpc::Status status = stub_->ListModels(call.context(), {}, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<std::string> RouterCalls::Health() {
  Call call(this, SystemNow() + timeout_);
  HealthResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel_)->Check(
      call.context(), AboutInference(), &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return HealthResponse::ServingStatus_Name(response.status());
}

absl::StatusOr<RouterCalls::HealthAndModels> RouterCalls::HealthWithModels() {
  // Max number of calls of Health and of ListModels until both agree on what is served. If the
  // router changes as often as that, any of its states will do.
  constexpr int kTries = 10;
  HealthAndModels both;
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(std::string health, Health());
    both.health = std::move(health);
    absl::StatusOr<v1::ListModelsResponse> models = ListModels();
    if (!models.ok()) return both;
    both.models = *std::move(models);
    const bool agree = std::all_of(
        both.models.models().begin(), both.models.models().end(), [&](const v1::Model& model) {
          return !model.has_serving() || model.serving() == (both.health == "SERVING");
        });
    if (agree) break;
  }
  return both;
}

absl::StatusOr<std::string> RouterCalls::WhyNotServing() {
  Call call(this, SystemNow() + absl::Seconds(2));
  AddToken(call.context(), api_key_);
  v1::ListModelsResponse models;
  if (const grpc::Status status = stub_->ListModels(call.context(), {}, &models); !status.ok()) {
    return FromGrpcStatus(status);
  }
  for (const v1::Model& model : models.models()) {
    if (!model.not_serving_because().empty()) return model.not_serving_because();
  }
  return "";
}

absl::Status RouterCalls::WaitUntilServing() {
  const absl::Time deadline = SystemNow() + timeout_;
  const auto stub = grpc::health::v1::Health::NewStub(channel_);
  while (true) {
    Call call(this, deadline);
    call.context()->set_wait_for_ready(true);
    const auto watch = stub->Watch(call.context(), AboutInference());
    HealthResponse response;
    bool serving = false;
    while (!serving && watch->Read(&response))
      serving = response.status() == HealthResponse::SERVING;
    if (serving) call.context()->TryCancel();
    const grpc::Status status = watch->Finish();
    if (serving) return absl::OkStatus();
    // A router that went away may come back. wait_for_ready makes the next call wait for a
    // connection.
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return FromGrpcStatus(status);
  }
}

}  // namespace baton
