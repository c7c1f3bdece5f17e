#include "common/rpc/one_request_call.h"

#include <algorithm>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/impl/rpc_service_method.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>  // up to gRPC 1.51
#endif

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

// Time by which a client's RPC may seem to end before its deadline, besides the rounding, because
// the RPC came late. If its whole time is short, the tolerance is a quarter of it.
constexpr absl::Duration kAtDeadline = absl::Milliseconds(100);
// Age of a read at which another one may take its place.
constexpr absl::Duration kReadAlone = absl::Seconds(1);

}  // namespace

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  return deadline == decltype(deadline)::max() ? absl::InfiniteFuture()
                                               : ToSteady(absl::FromChrono(deadline));
}

bool IsAtDeadline(absl::Time began, absl::Time deadline, absl::Time now) {
  if (deadline == absl::InfiniteFuture()) return false;
  const absl::Duration whole = deadline - began;
  return now >= deadline - std::min(kAtDeadline + whole / 100, whole / 4);
}

OneRequestCall::OneRequestCall(OneRequestService* service, grpc::CallbackServerContext* context)
    : service_(service),
      context_(context),
      peer_(context->peer()),
      connection_(service->connections_->RpcBegins(peer_)),
      began_(SteadyNow()),
      deadline_(DeadlineOf(*context)) {}

void OneRequestCall::Begin() {
  awaited_ = service_->connections_->MessageAwaited(connection_);
  key_ = service_->Begin(this);
}

void OneRequestCall::OnCancel() {
  const absl::Time now = SteadyNow();
  // A polite client sends its request at once, so it came before the deadline.
  if (!came_ || !IsAtDeadline(began_, deadline_, now)) {
    service_->connections_->RpcCancelled(connection_, now);
  }
  service_->Cancelled(key_);
}

void OneRequestCall::OnDone() {
  if (!read_ended_) service_->connections_->MessageCame(awaited_, 0);
  if (stays_open_) service_->connections_->NoLongerStaysOpen(connection_);
  service_->connections_->RpcEnds(connection_);
}

void OneRequestCall::StaysOpen() {
  stays_open_ = true;
  service_->connections_->StaysOpen(connection_);
}

void OneRequestCall::OnReadDone(bool ok) {
  const absl::Status why = ok ? absl::OkStatus() : WhyNotRead();
  service_->connections_->MessageCame(awaited_, ok ? request_.Length() : 0);
  read_ended_ = true;
  came_ = ok;
  if (!service_->Came(key_)) return;  // the RPC has been ended
  if (!ok) return EndWithoutRequest(why);
  grpc::ByteBuffer request;
  request.Swap(&request_);
  OnRequest(request);
}

absl::Status OneRequestCall::WhyGone() const {
  if (IsAtDeadline(began_, deadline_, SteadyNow())) {
    return absl::DeadlineExceededError("the deadline passed before the request of the call came");
  }
  return absl::CancelledError("the client cancelled before the request of its call came");
}

absl::Status OneRequestCall::WhyNotRead() const {
  // Otherwise gRPC has read a message, or the end of all messages.
  if (grpc_call_failed_before_recv_message(context_->c_call())) return WhyGone();
  // gRPC has told the client of a message that is too long, but it does not tell the server. So
  // much may have come also if the client sends no request but large ones in other calls.
  const size_t max = service_->connections_->max_message_bytes();
  if (service_->connections_->BytesSince(awaited_) > max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request has more than ", max, " bytes, which is the limit"));
  }
  if (context_->IsCancelled()) {
    return absl::UnimplementedError(
        "gRPC has refused the request, for example because it is compressed");
  }
  return absl::InvalidArgumentError("the call ended before its request came");
}

void OneRequestService::AddMethod(
    const char* name, std::function<OneRequestCall*(grpc::CallbackServerContext*)> call) {
  grpc::Service::AddMethod(new grpc::internal::RpcServiceMethod(
      name, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(methods_++,
                        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                            [call = std::move(call)](grpc::CallbackServerContext* context) {
                              OneRequestCall* const begun = call(context);
                              begun->Begin();
                              return begun;
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
  for (auto& [connection, reads] : reads_) PassOver(connection, &reads, now);
}

uint64_t OneRequestService::Begin(OneRequestCall* call) {
  MutexLock lock(&mutex_);
  const absl::Time now = SteadyNow();
  const uint64_t key = next_key_++;
  waiting_[key] = {.call = call, .until = now + limit_};
  Reads& reads = reads_[call->connection_];
  ++reads.calls;
  ++reads.begun;
  reads.others.insert(key);
  Read(&reads, now);
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
  call->EndWithoutRequest(call->WhyGone());
}

void OneRequestService::Forget(std::map<uint64_t, Waiting>::iterator waiting) {
  const auto reads = reads_.find(waiting->second.call->connection_);
  reads->second.places.erase(waiting->first);
  reads->second.others.erase(waiting->first);
  waiting_.erase(waiting);
  if (--reads->second.calls == 0) {
    reads_.erase(reads);
  } else {
    Read(&reads->second, SteadyNow());
  }
}

void OneRequestService::Read(Reads* reads, absl::Time now) {
  while (!reads->others.empty() && reads->places.size() < reads_at_once_) {
    const uint64_t key = *reads->others.begin();
    reads->others.erase(reads->others.begin());
    reads->places[key] = now;
    Waiting& begins = waiting_.at(key);
    begins.reading = true;
    begins.call->StartRead(&begins.call->request_);
  }
}

void OneRequestService::PassOver(uint64_t connection, Reads* reads, absl::Time now) {
  if (reads->others.empty()) {
    reads->unfinished.reset();
    return;
  }
  const uint64_t unfinished = connections_->UnfinishedBytes(connection);
  // gRPC takes the beginnings of requests that are not read yet. If more has come than those, the
  // requests that are read go on. If all were read at once, each would take longer, and together
  // they might be more than the limit.
  const bool go_on =
      !reads->unfinished || unfinished > *reads->unfinished + reads->begun * kUnreadBytes;
  reads->unfinished = unfinished;
  reads->begun = 0;
  // Parts of requests that do not go on stay in memory. The rest of the limit is for those that do.
  if (go_on || unfinished > connections_->limits().unfinished_bytes / 4) return;
  std::erase_if(reads->places,
                [now](const auto& place) { return place.second + kReadAlone <= now; });
  Read(reads, now);
}

}  // namespace baton
