#include "router/membership_service.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"

namespace baton {
namespace {

// Pause before a warning about the same host and reason is logged again.
constexpr absl::Duration kSameWarning = absl::Seconds(60);

// Returns gRPC's name of a peer without the port, because the port changes with each attempt.
// Example: ipv4:10.0.0.1.
std::string HostOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

// One Attach stream. It is in one of four states: a read is pending, the core has its last report,
// the router is connecting to the worker, or the stream is closed.
class AttachCall final : public grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand> {
 public:
  AttachCall(AttachKey key, std::string peer, std::function<void(CoreEvent)> tell,
             std::function<void()> registered, std::function<void()> done)
      : key_(key),
        peer_(std::move(peer)),
        tell_(std::move(tell)),
        on_registration_(std::move(registered)),
        done_(std::move(done)) {}

  void Start(std::shared_ptr<AttachCall> self) {
    self_ = std::move(self);
    StartRead(&report_);
  }

  const std::string& peer() const { return peer_; }

  void Taken() {
    MutexLock lock(&mutex_);
    if (end_) return;
    reading_ = true;  // From now on the pending read notices the end of the stream.
    StartRead(&report_);
  }

  // Passes the worker to the core once the router has connected to the address that the worker
  // registered. Loop thread. Returns
  // - OK once connected, or if the stream is over;
  // - Unavailable while the router is still connecting;
  // - FailedPrecondition with the reason if the router could not connect.
  absl::Status AnnounceOnceConnected(absl::Time now, absl::Duration limit) {
    MutexLock lock(&mutex_);
    if (end_ || worker_channel_ == nullptr) return absl::OkStatus();
    const grpc_connectivity_state state = worker_channel_->GetState(/*try_to_connect=*/true);
    const bool late = now - connecting_since_ > limit;
    const std::string& address = report_.registration().address();
    if (state == GRPC_CHANNEL_READY) {
      worker_channel_ = nullptr;
      // Called with the lock held, so that the core gets the registration before the end of the
      // stream.
      tell_(WorkerAttached{key_, std::move(*report_.mutable_registration())});
      return absl::OkStatus();
    }
    if (state != GRPC_CHANNEL_TRANSIENT_FAILURE && !late) {
      return absl::UnavailableError("the router is connecting to the worker");
    }
    worker_channel_ = nullptr;
    return absl::FailedPreconditionError(absl::StrCat(
        "the router can't reach this worker at ", address, " (",
        late ? absl::StrCat("no answer in ", absl::FormatDuration(limit))
             : "no such host, no route to it, nothing listens there, or a firewall is between",
        "): start the worker with a --listen or --advertise address that the router's machine "
        "reaches, and let no firewall keep the router from it"));
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
    if (!writing_) Finish(*end_);
  }

 private:
  void Write(const v1::Peers& peers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    *command_.mutable_peers() = peers;
    writing_ = true;
    StartWrite(&command_);
  }

  void OnReadDone(bool ok) override {
    absl::Status status;
    if (ok) {
      status = Check();
      if (status.ok()) {
        {
          MutexLock lock(&mutex_);
          if (end_) return;
          reading_ = false;
        }
        if (!std::exchange(registered_, true)) {
          Connect();
        } else {
          tell_(WorkerReported{key_, std::move(*report_.mutable_load())});
        }
        return;
      }
    }
    Close(status);
  }

  // Connects to the worker before the core is told of it. If the router could not connect, the
  // worker would look alive, because it reports its load, but fail every request.
  void Connect() {
    {
      MutexLock lock(&mutex_);
      worker_channel_ = Dial(report_.registration().address());
      connecting_since_ = SteadyNow();
    }
    on_registration_();
  }

  absl::Status Check() {
    if (!registered_) {
      if (!report_.has_registration()) {
        return absl::InvalidArgumentError("the first message of Attach must be a registration");
      }
      const std::string& address = report_.registration().address();
      if (!IsHostPort(address) || PortOf(address) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("registration with address '", address,
                         "'; it takes host:port, where routers reach the worker"));
      }
      return absl::OkStatus();
    }
    if (!report_.has_load()) {
      return absl::InvalidArgumentError("only load reports may follow a registration");
    }
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) gone_ = true;
    if (end_) {
      Finish(*end_);
    } else if (next_ && !gone_) {
      Write(*std::exchange(next_, std::nullopt));
    }
  }

  void OnCancel() override {
    {
      MutexLock lock(&mutex_);
      if (reading_) return;  // The pending read fails and then closes the stream.
    }
    Close(absl::CancelledError("the worker is gone"));
  }

  void OnDone() override {
    const std::shared_ptr<AttachCall> self = std::move(self_);
    tell_(WorkerDetached{key_});
    done_();
  }

  const AttachKey key_;
  const std::string peer_;  // Address that the stream comes from.
  const std::function<void(CoreEvent)> tell_;
  const std::function<void()> on_registration_, done_;
  std::shared_ptr<AttachCall> self_;
  v1::WorkerReport report_;  // Owned by the pending read.
  bool registered_ = false;  // Used only while a read is handled.
  Mutex mutex_;
  v1::RouterCommand command_ ABSL_GUARDED_BY(mutex_);  // Owned by the pending write.
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Peers> next_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  // Not null only while the router is connecting to the worker. During that time the registration
  // stays in report_.
  std::shared_ptr<grpc::Channel> worker_channel_ ABSL_GUARDED_BY(mutex_);
  absl::Time connecting_since_ ABSL_GUARDED_BY(mutex_);
};

namespace {

// A stream that is refused before anything is read from it.
class Refused final : public grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand> {
 public:
  explicit Refused(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

MembershipService::MembershipService(std::string token, absl::Duration connect_limit,
                                     std::function<void(CoreEvent)> tell,
                                     std::function<void()> wake)
    : token_(std::move(token)),
      connect_limit_(connect_limit),
      tell_(std::move(tell)),
      wake_(std::move(wake)) {}
MembershipService::~MembershipService() = default;

std::shared_ptr<AttachCall> MembershipService::Find(AttachKey attach) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(attach);
  return found == calls_.end() ? nullptr : found->second;
}

grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand>* MembershipService::Attach(
    grpc::CallbackServerContext* context) {
  absl::Status status = CheckToken(*context, token_);
  // A worker that has a token refuses calls without one, so it would fail every request of this
  // router.
  if (token_.empty() && HasToken(*context)) {
    status = absl::UnauthenticatedError(
        "the worker has an attach token and this router has none: give both the same");
  }
  if (!status.ok()) {
    WarnRefused(context->peer(), status, SteadyNow());
    return new Refused(status);
  }
  const AttachKey key = next_key_++;
  auto call = std::make_shared<AttachCall>(
      key, context->peer(), tell_,
      [this, key] {
        {
          MutexLock lock(&mutex_);
          connecting_.push_back(key);
          any_connecting_ = true;
        }
        wake_();
      },
      [this, key] {
        MutexLock lock(&mutex_);
        calls_.erase(key);
      });
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return new Refused(closed_);
    calls_[key] = call;
  }
  call->Start(call);
  return call.get();
}

bool MembershipService::CheckConnections(absl::Time now) {
  if (!any_connecting_) return false;
  std::vector<AttachKey> connecting, still_connecting;
  {
    MutexLock lock(&mutex_);
    connecting.swap(connecting_);
    any_connecting_ = false;
  }
  for (const AttachKey key : connecting) {
    const auto call = Find(key);
    if (call == nullptr) continue;
    const absl::Status status = call->AnnounceOnceConnected(now, connect_limit_);
    if (absl::IsUnavailable(status)) {
      still_connecting.push_back(key);
    } else if (!status.ok()) {
      WarnRefused(call->peer(), status, now);
      call->Close(status);
    }
  }
  MutexLock lock(&mutex_);
  connecting_.insert(connecting_.end(), still_connecting.begin(), still_connecting.end());
  any_connecting_ = !connecting_.empty();
  return any_connecting_;
}

void MembershipService::WarnRefused(const std::string& peer, const absl::Status& why,
                                    absl::Time now) {
  {
    MutexLock lock(&mutex_);
    std::erase_if(warned_, [now](const auto& one) { return now >= one.second; });
    if (!warned_.emplace(absl::StrCat(HostOf(peer), " ", why.message()), now + kSameWarning).second)
      return;
  }
  Log(Severity::kWarning, "attach_refused", {{"peer", peer}, {"because", why.message()}});
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
