#include "common/rpc/attach_client.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <netdb.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/base/wakeup.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"

namespace baton {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);

// The addresses of one name, each as host:port.
struct Resolved {
  std::vector<std::string> addresses;
  std::string error;  // reason why there are no addresses
};

Resolved Resolve(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  std::string host = host_port.substr(0, colon);
  const std::string port = host_port.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Resolved resolved;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    resolved.error = gai_strerror(error);
    return resolved;
  }
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) != 0)
      continue;
    resolved.addresses.push_back(entry->ai_family == AF_INET6 ? absl::StrCat("[", text, "]:", port)
                                                              : absl::StrCat(text, ":", port));
  }
  freeaddrinfo(found);
  if (resolved.addresses.empty()) resolved.error = "no address was found";
  return resolved;
}

// Returns advice for readers of the log on what to check after an Attach stream ended with
// `status`.
absl::string_view HintFor(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return "check --routers, that the router runs, that this machine can reach the address of "
             "its --listen (the default, 127.0.0.1, can't be reached from another machine), and "
             "that no firewall blocks it";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "the router and this worker need the same --attach-token (or $BATON_ATTACH_TOKEN)";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "the message says what to change; the router's log has it too";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "check --routers: the program at this address is not a Baton router";
    default:
      return "";
  }
}

// Decides which warnings are logged: the first one, one whose reason differs from the last, and
// otherwise one per interval. After Reset() the next warning counts as the first one again.
class RareWarning {
 public:
  bool IsDue(absl::Time now, absl::Duration interval, int reason = 0) {
    if (now < next_ && reason == reason_) return false;
    next_ = now + interval;
    reason_ = reason;
    return true;
  }
  void Reset() { next_ = absl::InfinitePast(); }

 private:
  absl::Time next_ = absl::InfinitePast();
  int reason_ = 0;
};

// One Attach stream. gRPC calls the On...() functions on its own threads. The attach thread makes,
// feeds and polls the stream.
class Stream : public grpc::ClientBidiReactor<v1::WorkerReport, v1::RouterCommand> {
 public:
  Stream(const std::string& address, const std::string& token, const v1::Registration& registration,
         Wakeup* wakeup)
      : wakeup_(wakeup), stub_(v1::Membership::NewStub(Dial(address))) {
    AddToken(&context_, token);
    *report_.mutable_registration() = registration;
    stub_->async()->Attach(&context_, this);
    // Send() writes from outside of gRPC's callbacks. The hold keeps the stream alive for such
    // writes.
    AddHold();
    StartWrite(&report_);
    StartRead(&command_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  // Returns true if Send() may be called: no report is being written, and the stream is not ending.
  bool CanSend() {
    MutexLock lock(&mutex_);
    return !writing_ && !ends_;
  }
  // Returns false, and sends nothing, while the previous report is being written or the stream is
  // ending.
  bool Send(v1::WorkerReport report) {
    MutexLock lock(&mutex_);
    if (writing_ || ends_) return false;
    report_ = std::move(report);
    writing_ = true;
    StartWrite(&report_);
    return true;
  }

  // Returns the newest list of peers that the router has sent; nothing if no list has arrived since
  // the last call.
  std::optional<v1::Peers> TakePeers() {
    MutexLock lock(&mutex_);
    return std::exchange(peers_, std::nullopt);
  }
  bool attached() {
    MutexLock lock(&mutex_);
    return heard_;
  }
  // Returns the final status once gRPC no longer uses this object.
  std::optional<grpc::Status> done() {
    MutexLock lock(&mutex_);
    return done_;
  }

 private:
  void OnReadDone(bool ok) override {
    // A read is always pending, so a read fails exactly once: at the end of the stream.
    if (!ok) {
      {
        MutexLock lock(&mutex_);
        ends_ = true;
      }
      RemoveHold();
      return;
    }
    {
      MutexLock lock(&mutex_);
      heard_ = true;
      if (command_.has_peers()) peers_ = command_.peers();
    }
    wakeup_->Wake();
    StartRead(&command_);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (!ok) context_.TryCancel();
  }

  void OnDone(const grpc::Status& status) override {
    // The lock is held to the end, because the attach thread may delete this object as soon as it
    // sees that `done_` is set.
    MutexLock lock(&mutex_);
    done_ = status;
    wakeup_->Wake();
  }

  Wakeup* const wakeup_;
  const std::unique_ptr<v1::Membership::Stub> stub_;
  grpc::ClientContext context_;
  v1::WorkerReport report_;    // used by the pending write
  v1::RouterCommand command_;  // used by the pending read
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Peers> peers_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> done_ ABSL_GUARDED_BY(mutex_);
};

// State of one router address. Attach thread only.
struct Router {
  std::unique_ptr<Stream> stream;
  absl::Time next_try = absl::InfinitePast();
  absl::Time next_report = absl::InfinitePast();
  absl::Duration pause = kFirstPause;
  bool told = false;  // true if "attached" was logged
  // True if the last attempt with a result ended with a refusal, and while there was no result yet.
  bool disputes = true;
  RareWarning warning;
  AttachClient::CacheReader read_cache;  // knows what this stream has told
  bool cache_due = true;                 // `read_cache` may have something to tell
  absl::Time next_cache = absl::InfinitePast();
  v1::Peers peers;
  absl::Time lost = absl::InfiniteFuture();
};

}  // namespace

struct AttachClient::State {
  Options options;
  std::function<std::optional<v1::LoadReport>()> load;
  std::function<void(const v1::Peers&)> peers;
  Wakeup wakeup;  // wakes the attach thread
  std::atomic<bool> stop = false;
  std::atomic<bool> report_now = false;
  std::atomic<bool> cache_changed = false;
  std::atomic<int> attached = 0;
  Standing standing;  // as last given to `on_standing`
  std::map<std::string, Router> routers;
  std::string last_peers;  // last peers given to `peers`, serialized to detect changes
  absl::Time next_resolve = absl::InfinitePast();
  absl::Duration resolve_pause = kFirstPause;  // pause after some name could not be resolved
  // For each name, the addresses of its last successful look-up. Only the thread that is running a
  // look-up uses this.
  std::map<std::string, std::vector<std::string>> last_named;
  std::map<std::string, RareWarning> name_warnings;  // key: the name
  // Names are resolved on another thread, so that a name server that hangs does not hold up the
  // reports.
  struct Named {
    std::set<std::string> addresses;
    std::map<std::string, std::string> errors;  // key: a name that could not be resolved
  };
  std::future<Named> resolving;
  std::thread thread;

  void Run();
  void ResolveAll(absl::Time now);
  void Step(const std::string& address, Router& router, absl::Time now, bool report);
  void SendCacheChanges(Router& router, absl::Time now);
  void TellPeers(absl::Time now);
  void TellStanding();
};

void AttachClient::State::ResolveAll(absl::Time now) {
  if (!resolving.valid()) {
    if (now < next_resolve) return;
    next_resolve = absl::InfiniteFuture();
    resolving = std::async(std::launch::async, [this] {
      Named named;
      for (const std::string& router : options.routers) {
        Resolved resolved = Resolve(router);
        std::vector<std::string>& known = last_named[router];
        if (resolved.addresses.empty()) {
          named.errors[router] = resolved.error;
        } else {
          known = std::move(resolved.addresses);
        }
        named.addresses.insert(known.begin(), known.end());
      }
      wakeup.Wake();
      return named;
    });
    return;
  }
  if (resolving.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  const Named named = resolving.get();
  for (const std::string& router : options.routers) {
    const auto error = named.errors.find(router);
    if (error == named.errors.end()) {
      name_warnings[router].Reset();
    } else if (name_warnings[router].IsDue(now, options.warning_interval)) {
      Log(Severity::kWarning, "router_unknown",
          {{"router", router},
           {"error", error->second},
           {"hint", "check the name in --routers, and this machine's name service (DNS)"}});
    }
  }
  const bool all_known = named.errors.empty();
  next_resolve = now + (all_known ? options.resolve_interval : resolve_pause);
  const absl::Duration longest =
      named.addresses.empty() ? options.longest_pause : options.resolve_interval;
  resolve_pause = all_known ? kFirstPause : std::min(resolve_pause * 2, longest);
  for (const std::string& address : named.addresses) routers.try_emplace(address);
  // Drops a router once no name resolves to its address any more, its stream has ended and
  // keep_peers has passed. A name that can't be resolved now keeps its last addresses, because the
  // fault may be the name server's.
  for (auto it = routers.begin(); it != routers.end();) {
    const bool forget = !named.addresses.contains(it->first) && it->second.stream == nullptr &&
                        now - it->second.lost > options.keep_peers;
    it = forget ? routers.erase(it) : std::next(it);
  }
}

void AttachClient::State::Step(const std::string& address, Router& router, absl::Time now,
                               bool report) {
  if (router.stream == nullptr) {
    if (now < router.next_try) return;
    router.stream = std::make_unique<Stream>(address, options.token, options.registration, &wakeup);
    router.next_report = now;
    if (options.new_cache_reader) router.read_cache = options.new_cache_reader();
    router.cache_due = true;
  }
  if (std::optional<v1::Peers> heard = router.stream->TakePeers()) {
    router.peers = *std::move(heard);
    router.lost = absl::InfiniteFuture();
  }
  if (router.stream->attached() && !router.told) {
    router.told = true;
    router.disputes = false;
    router.pause = kFirstPause;
    router.warning.Reset();
    Log(Severity::kInfo, "attached", {{"router", address}});
  }
  if (const std::optional<grpc::Status> done = router.stream->done()) {
    router.stream = nullptr;
    router.next_try = now + router.pause;
    router.pause = std::min(router.pause * 2, options.longest_pause);
    router.lost = std::min(router.lost, now);
    const bool refused = done->error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                         done->error_code() == grpc::StatusCode::FAILED_PRECONDITION;
    // A call that was cut short does not say whether the router accepts this worker. gRPC may also
    // report the end of a refused call like this.
    if (done->error_code() != grpc::StatusCode::CANCELLED) router.disputes = refused;
    if (router.warning.IsDue(now, options.warning_interval, done->error_code())) {
      Log(refused ? Severity::kError : Severity::kWarning,
          router.told ? "detached"
          : refused   ? "attach_refused"
                      : "router_unreachable",
          {{"router", address},
           {"code", absl::StatusCodeToString(FromGrpcStatus(*done).code())},
           {"message", done->error_message()},
           {"hint", HintFor(*done)}});
    }
    router.told = false;
    return;
  }
  if (report || now >= router.next_report) {
    bool through = true;
    if (std::optional<v1::LoadReport> said = load()) {
      v1::WorkerReport message;
      *message.mutable_load() = *std::move(said);
      through = router.stream->Send(std::move(message));
    }
    router.next_report = through ? now + options.report_interval : now;
  }
  SendCacheChanges(router, now);
}

void AttachClient::State::SendCacheChanges(Router& router, absl::Time now) {
  if (!router.read_cache || !router.told || !router.cache_due || now < router.next_cache ||
      !router.stream->CanSend()) {
    return;
  }
  std::optional<CacheMessage> next = router.read_cache();
  router.cache_due = next.has_value();
  if (!next) return;
  v1::WorkerReport message;
  *message.mutable_cache() = std::move(next->changes);
  // If the stream is ending, Send() drops the message. The next stream gets a new reader, which
  // tells everything again.
  router.stream->Send(std::move(message));
  router.next_cache = next->more ? now : now + options.cache_interval;
}

void AttachClient::State::TellPeers(absl::Time now) {
  std::map<uint64_t, const v1::Peer*> by_epoch;
  bool none_fits = false;
  for (const auto& [address, router] : routers) {
    if (now - router.lost > options.keep_peers) continue;
    none_fits = none_fits || router.peers.none_fits();
    for (const v1::Peer& peer : router.peers.peers()) by_epoch.emplace(peer.epoch(), &peer);
  }
  v1::Peers all;
  for (const auto& [epoch, peer] : by_epoch) *all.add_peers() = *peer;
  all.set_none_fits(none_fits && by_epoch.empty());
  if (std::string now_told = all.SerializeAsString(); now_told != last_peers) {
    last_peers = std::move(now_told);
    peers(all);
  }
}

void AttachClient::State::TellStanding() {
  Standing now = {.undisputed = !routers.empty()};
  for (const auto& [address, router] : routers) {
    now.attached += router.told ? 1 : 0;
    now.undisputed &= !router.disputes;
  }
  attached = now.attached;
  if (now == standing) return;
  standing = now;
  if (options.on_standing) options.on_standing(standing);
}

void AttachClient::State::Run() {
  while (!stop) {
    const absl::Time now = SteadyNow();
    ResolveAll(now);
    const bool report = report_now.exchange(false);
    if (cache_changed.exchange(false)) {
      for (auto& [address, router] : routers) router.cache_due = true;
    }
    for (auto& [address, router] : routers) Step(address, router, now, report);
    TellPeers(now);
    TellStanding();
    absl::Time next = next_resolve;
    for (const auto& [address, router] : routers) {
      next = std::min(next, router.stream == nullptr ? router.next_try : router.next_report);
      if (router.read_cache && router.told && router.cache_due) {
        next = std::min(next, router.next_cache);
      }
    }
    const absl::Duration longest = resolving.valid() ? kFirstPause : absl::Seconds(60);
    // Waits at least 10 ms: what could not be sent, because the message before it was still being
    // written, is tried again after this wait.
    wakeup.WaitFor(std::clamp(next - SteadyNow(), absl::Milliseconds(10), longest));
  }
  for (auto& [address, router] : routers) {
    if (router.stream == nullptr) continue;
    router.stream->Cancel();
    while (!router.stream->done()) wakeup.WaitFor(absl::Milliseconds(100));
  }
}

AttachClient::AttachClient(Options options, std::function<std::optional<v1::LoadReport>()> load,
                           std::function<void(const v1::Peers&)> peers)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->load = std::move(load);
  state_->peers = std::move(peers);
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

AttachClient::~AttachClient() {
  state_->stop = true;
  state_->wakeup.Wake();
  state_->thread.join();
}

int AttachClient::attached() const { return state_->attached; }

void AttachClient::ReportNow() {
  state_->report_now = true;
  state_->wakeup.Wake();
}

void AttachClient::CacheChanged() {
  state_->cache_changed = true;
  state_->wakeup.Wake();
}

absl::StatusOr<std::vector<std::string>> ParseRouters(absl::string_view list) {
  std::vector<std::string> routers = absl::StrSplit(list, ',', absl::SkipWhitespace());
  for (const std::string& router : routers) {
    if (!IsHostPort(router) || PortOf(router) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--routers: '", router, "' is not HOST:PORT with a port from 1 to 65535"));
    }
  }
  if (routers.empty())
    return absl::InvalidArgumentError(
        "--routers names no router; it takes HOST:PORT, or several with commas between them");
  return routers;
}

}  // namespace baton
