#include "common/rpc/health_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/raw_request.h"
#include "common/rpc/status.h"
#include "grpc/health/v1/health.pb.h"

namespace baton {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

// Longest request that is parsed. Names of services are shorter.
constexpr size_t kMaxRequestBytes = 4096;

absl::Status ServiceOf(const grpc::ByteBuffer& bytes, std::string* service) {
  if (bytes.Length() > kMaxRequestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the health check has ", bytes.Length(), " bytes, limit ", kMaxRequestBytes));
  }
  HealthCheckRequest request;
  if (absl::Status status = ParseRequest(bytes, &request); !status.ok()) return status;
  *service = std::move(*request.mutable_service());
  return absl::OkStatus();
}

grpc::ByteBuffer Response(HealthCheckResponse::ServingStatus status) {
  HealthCheckResponse response;
  response.set_status(status);
  const grpc::Slice bytes(response.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

}  // namespace

class HealthService::Check final : public OneRequestCall {
 public:
  Check(HealthService* service, grpc::CallbackServerContext* context)
      : OneRequestCall(service, context), service_(service) {}

 private:
  void OnRequest(const grpc::ByteBuffer& bytes) override {
    std::string name;
    if (const absl::Status status = ServiceOf(bytes, &name); !status.ok()) {
      return Finish(ToGrpcStatus(status));
    }
    MutexLock lock(&service_->mutex_);
    const auto found = service_->services_.find(name);
    if (found == service_->services_.end()) {
      return Finish({grpc::StatusCode::NOT_FOUND, "this server has no such service"});
    }
    response_ =
        Response(found->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void EndWithoutRequest(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }
  void OnDone() override {
    OneRequestCall::OnDone();
    delete this;
  }

  HealthService* const service_;
  grpc::ByteBuffer response_;  // Owned by the pending write.
};

// One write is pending at a time. Statuses that come meanwhile replace each other.
class HealthService::Watch final : public OneRequestCall {
 public:
  Watch(HealthService* service, grpc::CallbackServerContext* context)
      : OneRequestCall(service, context), service_(service) {}

  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (finished_ || writing_) return;
    const auto found = service_->services_.find(name_);
    const auto now = found == service_->services_.end() ? HealthCheckResponse::SERVICE_UNKNOWN
                     : found->second                    ? HealthCheckResponse::SERVING
                                                        : HealthCheckResponse::NOT_SERVING;
    if (now != told_) {
      told_ = now;
      response_ = Response(now);
      writing_ = true;
      StartWrite(&response_);
    } else if (service_->ended_) {
      End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
    }
  }

 private:
  void OnRequest(const grpc::ByteBuffer& bytes) override {
    const absl::Status status = ServiceOf(bytes, &name_);
    if (status.ok()) StaysOpen();
    MutexLock lock(&service_->mutex_);
    if (cancelled_) return End(grpc::Status::CANCELLED);
    if (!status.ok()) return End(ToGrpcStatus(status));
    service_->watches_.insert(this);
    Update();
  }
  void EndWithoutRequest(const absl::Status& status) override {
    MutexLock lock(&service_->mutex_);
    End(ToGrpcStatus(status));
  }
  void OnWriteDone(bool) override {
    MutexLock lock(&service_->mutex_);
    writing_ = false;
    Update();
  }
  void OnCancel() override {
    OneRequestCall::OnCancel();
    MutexLock lock(&service_->mutex_);
    cancelled_ = true;
    // If the request is being read, the read ends because of the cancellation.
    if (service_->watches_.contains(this)) End(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    OneRequestCall::OnDone();
    {
      MutexLock lock(&service_->mutex_);
      service_->watches_.erase(this);
    }
    delete this;
  }
  void End(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (!std::exchange(finished_, true)) Finish(std::move(status));
  }

  HealthService* const service_;
  std::string name_;  // Set before the watch is in `watches_`.
  bool writing_ ABSL_GUARDED_BY(service_->mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(service_->mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(service_->mutex_) = false;
  HealthCheckResponse::ServingStatus told_ ABSL_GUARDED_BY(service_->mutex_) =
      HealthCheckResponse::UNKNOWN;
  grpc::ByteBuffer response_;  // Owned by the pending write.
};

HealthService::HealthService(Connections* connections, absl::Duration limit)
    : OneRequestService(connections, limit, /*reads=*/2) {
  AddMethod("/grpc.health.v1.Health/Check",
            [this](grpc::CallbackServerContext* context) { return new Check(this, context); });
  AddMethod("/grpc.health.v1.Health/Watch",
            [this](grpc::CallbackServerContext* context) { return new Watch(this, context); });
}

void HealthService::Set(absl::string_view service, bool serving) {
  MutexLock lock(&mutex_);
  services_[std::string(service)] = serving && !ended_;
  for (Watch* watch : watches_) watch->Update();
}

void HealthService::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
  for (auto& [name, serving] : services_) serving = false;
  for (Watch* watch : watches_) watch->Update();
}

}  // namespace baton
