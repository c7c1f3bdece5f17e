#include "router/membership_service.h"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "baton/v1/worker_identity.grpc.pb.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/limits.h"
#include "common/rpc/raw_request.h"
#include "common/rpc/status.h"
#include "router/core/worker_caches.h"

namespace baton {
namespace {

// Pause before a warning about the same host and reason is logged again.
constexpr absl::Duration kSameWarning = absl::Seconds(60);

// Returns gRPC's name of a peer without the port, because the port changes with each attempt.
// Example: ipv4:10.0.0.1.
std::string HostOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

// One call of WorkerIdentity at the address that a worker registered. Must stay alive until the
// call is over.
struct IdentityCall {
  IdentityCall(const std::string& address, const std::string& token, absl::Duration limit)
      : stub(v1::WorkerIdentity::NewStub(Dial(address))) {
    AddToken(&context, token);
    context.set_deadline(absl::ToChronoTime(FromSteady(SteadyNow() + limit)));
  }

  const std::unique_ptr<v1::WorkerIdentity::Stub> stub;
  grpc::ClientContext context;
  v1::IdentifyRequest request;
  v1::IdentifyResponse response;
};

// Judges the result of the call: OK if the answer comes from the worker that registered, otherwise
// FailedPrecondition with the reason and what to do.
absl::Status JudgeIdentity(const v1::Registration& worker, const grpc::Status& called,
                           const v1::IdentifyResponse& response, absl::Duration limit) {
  if (called.ok() && response.epoch() == worker.epoch()) return absl::OkStatus();
  std::string other;
  switch (called.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAVAILABLE:
      return absl::FailedPreconditionError(absl::StrCat(
          "the router can't reach this worker at ", worker.address(), " (",
          called.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
              ? absl::StrCat("no answer in ", absl::FormatDuration(limit))
              : "no such host, no route to it, no program listens there, or a firewall blocks it",
          "): start the worker with a --listen or --advertise address that the router's machine "
          "can "
          "reach, and open its port in any firewall between them"));
    case grpc::StatusCode::OK:
      other = absl::StrFormat("another worker (epoch %016x) answers there", response.epoch());
      break;
    case grpc::StatusCode::UNAUTHENTICATED:
      other = "a program with another attach token answers there";
      break;
    default:
      other =
          absl::StrCat("the program that answers there is not a worker: ", called.error_message());
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the router does not reach this worker at ", worker.address(), ": ", other,
                   ". Start the worker with a --listen or --advertise address that on the router's "
                   "machine, too, "
                   "means this worker (127.0.0.1 means the router's own machine there)"));
}

}  // namespace

// One Attach stream. It is in one of four states: a read is pending; the core has not yet taken the
// last report; the router asks which process answers at the worker's address; or the stream is
// closed.
class AttachCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Functions and values that the stream gets from the service.
  struct Service {
    std::function<void(CoreEvent)> tell;
    std::function<void(const absl::Status& why)> warn_refused;
    std::function<Connections::Awaited()> awaits_message;
    std::function<void(const Connections::Awaited& awaited, size_t bytes)> message_came;
    std::function<void()> cancelled;
    std::function<void()> done;
    std::string token;
    absl::Duration connect_limit;
  };
  AttachCall(AttachKey key, Service service) : key_(key), service_(std::move(service)) {}

  void Start(std::shared_ptr<AttachCall> self) {
    self_ = std::move(self);
    Read();
  }

  // True if the worker has registered, or if the stream began less than `limit` ago.
  bool InTime(absl::Time now, absl::Duration limit) const {
    return registered_ || now < began_ + limit;
  }

  void Taken() {
    MutexLock lock(&mutex_);
    if (end_) return;
    reading_ = true;  // From now on the pending read notices the end of the stream.
    Read();
  }

  void Send(const v1::Peers& peers) {
    MutexLock lock(&mutex_);
    if (end_ || gone_) return;
    if (writing_) {
      next_ = peers;  // Replaces a list of peers that was not written yet.
      return;
    }
    Write(peers);
  }

  void Close(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (end_) return;
    end_ = ToGrpcStatus(status);
    if (identity_ != nullptr) identity_->context.TryCancel();
    FinishIfIdle();
  }

 private:
  void Read() {
    awaited_ = service_.awaits_message();
    StartRead(&bytes_);
  }

  // Finishes the closed stream once nothing is pending that uses this object.
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end_ && !writing_ && identity_ == nullptr) Finish(*end_);
  }

  void Write(const v1::Peers& peers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::RouterCommand command;
    *command.mutable_peers() = peers;
    const grpc::Slice bytes(command.SerializeAsString());
    command_ = grpc::ByteBuffer(&bytes, 1);
    writing_ = true;
    StartWrite(&command_);
  }

  void OnReadDone(bool ok) override {
    service_.message_came(awaited_, ok ? bytes_.Length() : 0);
    // If the read has failed, the worker has ended its side of the stream, or is gone.
    absl::Status status;
    if (ok) {
      status = Parse();
      if (status.ok()) status = Check();
      if (status.ok()) {
        {
          MutexLock lock(&mutex_);
          if (end_) return;
          reading_ = false;
        }
        if (!registered_.exchange(true)) {
          AskIdentity();
        } else {
          Pass();
        }
        return;
      }
    }
    Close(status);
  }

  // Passes a checked report to the core.
  void Pass() {
    if (report_.has_load()) {
      service_.tell(WorkerReported{key_, std::move(*report_.mutable_load())});
    } else {
      service_.tell(WorkerCached{key_, std::move(*report_.mutable_cache())});
    }
  }

  // Asks which process answers at the worker's address, before the core is told of the worker. A
  // worker that the router can't reach would look alive, because it reports its load, but fail
  // every request.
  void AskIdentity() {
    MutexLock lock(&mutex_);
    if (end_) return;
    identity_ = std::make_unique<IdentityCall>(report_.registration().address(), service_.token,
                                               service_.connect_limit);
    identity_->stub->async()->Identify(
        &identity_->context, &identity_->request, &identity_->response,
        [self = self_](const grpc::Status& status) { self->OnIdentity(status); });
  }

  void OnIdentity(const grpc::Status& called) {
    MutexLock lock(&mutex_);
    const std::unique_ptr<IdentityCall> identity = std::move(identity_);
    if (end_) return FinishIfIdle();
    v1::Registration& worker = *report_.mutable_registration();
    const bool old = worker.protocol_version() != static_cast<uint32_t>(kProtocolVersion) &&
                     called.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    const absl::Status status =
        old ? absl::OkStatus()
            : JudgeIdentity(worker, called, identity->response, service_.connect_limit);
    if (status.ok()) {
      // This call is made with the lock held. Otherwise another thread could tell the core about
      // the end of the stream before the registration.
      service_.tell(WorkerAttached{key_, std::move(worker)});
      return;
    }
    service_.warn_refused(status);
    end_ = ToGrpcStatus(status);
    FinishIfIdle();
  }

  // Turns the bytes that were read into `report_`.
  absl::Status Parse() {
    grpc::ByteBuffer bytes;
    bytes.Swap(&bytes_);
    if (const size_t length = bytes.Length(); length > kMaxReportBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a message of the worker has ", length,
                                                     " bytes; at most ", kMaxReportBytes));
    }
    return ParseRequest(bytes, &report_);
  }

  absl::Status Check() {
    if (!registered_) {
      if (!report_.has_registration()) {
        return absl::InvalidArgumentError("the first message of Attach must be a registration");
      }
      const std::string& address = report_.registration().address();
      if (address.size() > MembershipService::kMaxAddressBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("a worker registered with an address of ", address.size(),
                         " bytes; an address has at most ", MembershipService::kMaxAddressBytes));
      }
      if (!IsHostPort(address) || PortOf(address) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("a worker registered with address '", address,
                         "'; it takes HOST:PORT at which routers reach the worker"));
      }
      return absl::OkStatus();
    }
    if (report_.has_cache()) {
      return CheckCacheChanges(report_.cache());
    }
    if (!report_.has_load()) {
      return absl::InvalidArgumentError(
          "only load reports and cache changes may follow a registration");
    }
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) gone_ = true;
    FinishIfIdle();
    if (!end_ && next_ && !gone_) Write(*std::exchange(next_, std::nullopt));
  }

  void OnCancel() override {
    service_.cancelled();
    {
      MutexLock lock(&mutex_);
      if (reading_) return;  // The pending read fails and then closes the stream.
    }
    Close(absl::CancelledError("the worker disconnected"));
  }

  void OnDone() override {
    const std::shared_ptr<AttachCall> self = std::move(self_);
    service_.tell(WorkerDetached{key_});
    service_.done();
  }

  const AttachKey key_;
  const Service service_;
  std::shared_ptr<AttachCall> self_;
  grpc::ByteBuffer bytes_;        // Owned by the pending read.
  Connections::Awaited awaited_;  // Belongs to the pending read.
  v1::WorkerReport report_;       // The last message. Owned by the pending identity call.
  const absl::Time began_ = SteadyNow();
  std::atomic<bool> registered_ = false;  // Set only while a read is handled.
  Mutex mutex_;
  grpc::ByteBuffer command_ ABSL_GUARDED_BY(mutex_);  // Owned by the pending write.
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Peers> next_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  // The call that asks which process answers at the worker's address. Not null only while the call
  // is pending.
  std::unique_ptr<IdentityCall> identity_ ABSL_GUARDED_BY(mutex_);
};

namespace {

// A stream that is refused before anything is read from it.
class Refused final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Refused(const absl::Status& status, std::function<void()> cancelled, std::function<void()> done)
      : cancelled_(std::move(cancelled)), done_(std::move(done)) {
    Finish(ToGrpcStatus(status));
  }
  void OnCancel() override { cancelled_(); }
  void OnDone() override {
    done_();
    delete this;
  }

 private:
  const std::function<void()> cancelled_, done_;
};

}  // namespace

MembershipService::MembershipService(std::string token, absl::Duration connect_limit,
                                     absl::Duration request_limit, Connections* connections,
                                     std::function<void(CoreEvent)> tell)
    : token_(std::move(token)),
      connect_limit_(connect_limit),
      request_limit_(request_limit),
      connections_(connections),
      tell_(std::move(tell)) {}
MembershipService::~MembershipService() = default;

std::shared_ptr<AttachCall> MembershipService::Find(AttachKey attach) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(attach);
  return found == calls_.end() ? nullptr : found->second;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* MembershipService::Attach(
    grpc::CallbackServerContext* context) {
  const std::string peer = context->peer();
  const uint64_t connection = connections_->RpcBegins(peer);
  const auto cancelled = [this, connection] {
    connections_->RpcCancelled(connection, SteadyNow());
  };
  const auto ended = [this, connection] { connections_->RpcEnds(connection); };
  absl::Status status = CheckToken(*context, token_);
  // A worker that has a token refuses calls without one, so it would fail every request of this
  // router.
  if (token_.empty() && HasToken(*context)) {
    status = absl::UnauthenticatedError(
        "the worker has an attach token and this router has none: give both the same "
        "--attach-token");
  }
  if (!status.ok()) {
    WarnRefused(peer, status);
    return new Refused(status, cancelled, ended);
  }
  const AttachKey key = next_key_++;
  AttachCall::Service service = {
      .tell = tell_,
      .warn_refused = [this, peer](const absl::Status& why) { WarnRefused(peer, why); },
      .awaits_message = [this, connection] { return connections_->MessageAwaited(connection); },
      .message_came = [this](const Connections::Awaited& awaited,
                             size_t bytes) { connections_->MessageCame(awaited, bytes); },
      .cancelled = cancelled,
      .done =
          [this, key, connection, ended] {
            ended();
            MutexLock lock(&mutex_);
            calls_.erase(key);
            const auto of = calls_of_.find(connection);
            if (--of->second == 0) calls_of_.erase(of);
          },
      .token = token_,
      .connect_limit = connect_limit_};
  auto call = std::make_shared<AttachCall>(key, std::move(service));
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return new Refused(closed_, cancelled, ended);
    int& streams = calls_of_[connection];
    if (streams == kStreams) {
      return new Refused(
          absl::ResourceExhaustedError(absl::StrCat("this connection has ", kStreams,
                                                    " Attach streams already, which is the limit")),
          cancelled, ended);
    }
    ++streams;
    calls_[key] = call;
  }
  call->Start(call);
  return call.get();
}

void MembershipService::WarnRefused(const std::string& peer, const absl::Status& why) {
  uint64_t not_logged = 0;
  {
    const absl::Time now = SteadyNow();
    MutexLock lock(&mutex_);
    std::erase_if(warned_, [now](const auto& one) { return now >= one.second; });
    const std::string key = absl::StrCat(HostOf(peer), " ", why.message());
    if (warned_.contains(key)) return;
    if (warned_.size() == kMaxWarnings) {
      ++not_logged_;
      return;
    }
    warned_.emplace(key, now + kSameWarning);
    not_logged = std::exchange(not_logged_, 0);
  }
  Log(Severity::kWarning, "attach_refused",
      {{"peer", peer}, {"because", why.message()}, {"not_logged", not_logged}});
}

void MembershipService::Taken(AttachKey attach) {
  if (const auto call = Find(attach)) call->Taken();
}
void MembershipService::Send(AttachKey attach, const v1::Peers& peers) {
  if (const auto call = Find(attach)) call->Send(peers);
}
void MembershipService::Close(AttachKey attach, const absl::Status& status) {
  if (const auto call = Find(attach)) call->Close(status);
}
void MembershipService::EndWithoutRegistrations(absl::Time now) {
  std::vector<std::shared_ptr<AttachCall>> late;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, call] : calls_) {
      if (!call->InTime(now, request_limit_)) late.push_back(call);
    }
  }
  for (const auto& call : late) {
    call->Close(absl::DeadlineExceededError(
        absl::StrCat("no registration came within ", absl::FormatDuration(request_limit_))));
  }
}

void MembershipService::CloseAll(const absl::Status& status) {
  std::vector<std::shared_ptr<AttachCall>> calls;
  {
    MutexLock lock(&mutex_);
    closed_ = status;
    for (const auto& [key, call] : calls_) calls.push_back(call);
  }
  for (const auto& call : calls) call->Close(status);
}

}  // namespace baton
