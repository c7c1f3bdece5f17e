#include "router/grpc/generate_call.h"

#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "router/grpc/client_messages.h"

namespace baton {

std::shared_ptr<GenerateCall> GenerateCall::Create(OneRequestService* service, Door* door,
                                                   RequestKey key,
                                                   grpc::CallbackServerContext* context,
                                                   Callbacks callbacks) {
  auto call = std::shared_ptr<GenerateCall>(
      new GenerateCall(service, door, key, context, std::move(callbacks)));
  call->self_ = call;
  return call;
}

GenerateCall::GenerateCall(OneRequestService* service, Door* door, RequestKey key,
                           grpc::CallbackServerContext* context, Callbacks callbacks)
    : OneRequestCall(service, context),
      door_(door),
      key_(key),
      callbacks_(std::move(callbacks)),
      context_(context) {}

void GenerateCall::OnRequest(const grpc::ByteBuffer& request) { callbacks_.begin(request); }

void GenerateCall::EndWithoutRequest(const absl::Status& status) {
  callbacks_.no_request(status);
  End(status);
}

void GenerateCall::Send(ClientEvent event) {
  grpc::ByteBuffer bytes;
  bool own = false;
  BATON_CHECK(grpc::SerializationTraits<v1::GenerateEvent>::Serialize(ToProto(std::move(event)),
                                                                      &bytes, &own)
                  .ok())
      << "an event that can't be serialised";
  MutexLock lock(&mutex_);
  if (end_ || gone_) return;
  queue_.push_back(std::move(bytes));
  if (queue_.size() == 1) StartWrite(&queue_.front());
}

void GenerateCall::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (end_) return;
  end_ = ToGrpcStatus(status);
  if (context_ != nullptr) AddRetryPushback(status, context_);
  if (queue_.empty()) {
    Finish(*end_);
  } else if (!status.ok()) {
    queue_.erase(queue_.begin() + 1, queue_.end());
  }
}

void GenerateCall::Abort() {
  MutexLock lock(&mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void GenerateCall::OnWriteDone(bool ok) {
  bool writable = false;
  {
    MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok) {
      gone_ = true;
      queue_.clear();
    }
    if (!queue_.empty()) {
      StartWrite(&queue_.front());
    } else if (end_) {
      Finish(*end_);
    } else {
      writable = ok;
    }
  }
  if (writable) door_->Writable(key_);
}

void GenerateCall::OnCancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  door_->Cancelled(key_);
  OneRequestCall::OnCancel();
}

bool GenerateCall::cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

void GenerateCall::OnDone() {
  {
    MutexLock lock(&mutex_);
    context_ = nullptr;
  }
  const std::shared_ptr<GenerateCall> self = std::move(self_);
  OneRequestCall::OnDone();
  callbacks_.done();
}

}  // namespace baton
