#include "common/rpc/one_request_call.h"

#include <algorithm>
#include <utility>

#include <grpcpp/impl/rpc_service_method.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>  // up to gRPC 1.51
#endif

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"

namespace baton {
namespace {

// A client whose deadline passes cancels its RPC. It is not rude, and its clock may be a little
// ahead of ours. If its whole time is short,
// this tolerance is a quarter of it.
constexpr absl::Duration kAtDeadline = absl::Milliseconds(100);

}  // namespace

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  return deadline == decltype(deadline)::max() ? absl::InfiniteFuture()
                                               : ToSteady(absl::FromChrono(deadline));
}

OneRequestCall::OneRequestCall(OneRequestService* service,
                               const grpc::CallbackServerContext* context)
    : service_(service),
      peer_(context->peer()),
      began_(SteadyNow()),
      deadline_(DeadlineOf(*context)) {
  service_->connections_->RpcBegins(peer_);
  service_->connections_->MessageAwaited(peer_);
  // gRPC keeps what this begins until the whole object is made.
  key_ = service_->Begin(this);
}

void OneRequestCall::OnCancel() {
  const absl::Time now = SteadyNow();
  const absl::Duration early = std::min(kAtDeadline, (deadline_ - began_) / 4);
  if (!came_ || now < deadline_ - early) service_->connections_->RpcCancelled(peer_, now);
  service_->Cancelled(key_);
}

void OneRequestCall::OnDone() {
  if (!read_ended_) service_->connections_->MessageCame(peer_, 0);
  service_->connections_->RpcEnds(peer_);
}

void OneRequestCall::OnReadDone(bool ok) {
  service_->connections_->MessageCame(peer_, ok ? request_.Length() : 0);
  read_ended_ = true;
  came_ = ok;
  if (!service_->Came(key_)) return;  // the RPC has been ended
  if (!ok) return EndWithoutRequest(absl::InvalidArgumentError("the call ended before its request came"));
  grpc::ByteBuffer request;
  request.Swap(&request_);
  OnRequest(request);
}

void OneRequestService::AddMethod(
    const char* name, std::function<OneRequestCall*(grpc::CallbackServerContext*)> call) {
  grpc::Service::AddMethod(new grpc::internal::RpcServiceMethod(
      name, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(methods_++,
                        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                            [call = std::move(call)](grpc::CallbackServerContext* context) {
                              return call(context);
                            }));
}

void OneRequestService::EndWithoutRequests(absl::Time now) {
  MutexLock lock(&mutex_);
  while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
    OneRequestCall* const call = waiting_.begin()->second.call;
    Forget(waiting_.begin());
    call->EndWithoutRequest(absl::DeadlineExceededError(absl::StrCat(
        "the request did not come within ", absl::FormatDuration(limit_), " after its call")));
  }
}

uint64_t OneRequestService::Begin(OneRequestCall* call) {
  MutexLock lock(&mutex_);
  const uint64_t key = next_key_++;
  Reads& reads = reads_[call->peer_];
  const bool read = reads.reading < reads_at_once_;
  waiting_[key] = {call, SteadyNow() + limit_, read};
  if (read) {
    ++reads.reading;
    call->StartRead(&call->request_);
  } else {
    reads.others.insert(key);
  }
  return key;
}

bool OneRequestService::Came(uint64_t key) {
  MutexLock lock(&mutex_);
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return false;
  Forget(waiting);
  return true;
}

void OneRequestService::Cancelled(uint64_t key) {
  MutexLock lock(&mutex_);
  const auto waiting = waiting_.find(key);
  // If the request is being read, the read ends because of the cancellation.
  if (waiting == waiting_.end() || waiting->second.reading) return;
  OneRequestCall* const call = waiting->second.call;
  Forget(waiting);
  call->EndWithoutRequest(absl::CancelledError("the client cancelled"));
}

void OneRequestService::Forget(std::map<uint64_t, Waiting>::iterator waiting) {
  const auto reads = reads_.find(waiting->second.call->peer_);
  if (waiting->second.reading) {
    --reads->second.reading;
  } else {
    reads->second.others.erase(waiting->first);
  }
  waiting_.erase(waiting);
  if (!reads->second.others.empty() && reads->second.reading < reads_at_once_) {
    const uint64_t next = *reads->second.others.begin();
    reads->second.others.erase(reads->second.others.begin());
    ++reads->second.reading;
    Waiting& begins = waiting_.at(next);
    begins.reading = true;
    begins.call->StartRead(&begins.call->request_);
  }
  if (reads->second.reading == 0) reads_.erase(reads);
}

}  // namespace baton
