#include "kv_transfer/transport/ucx_transport.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "kv_transfer/transport/ended_reads.h"
#include "kv_transfer/transport/port_range.h"
#include "kv_transfer/transport/tcp_greetings.h"
#include "kv_transfer/transport/ucx_address.h"
#include "kv_transfer/transport/ucx_connection.h"
#include "kv_transfer/transport/ucx_failures.h"
#include "kv_transfer/transport/ucx_worker.h"

namespace baton {
namespace {

// Max bytes handed to UCX in one Progress. Over shared memory UCX copies them within the call. The
// limit keeps the bytes in the CPU cache until their `done` is called.
constexpr size_t kBytesPerProgress = 512 << 10;
constexpr int kProgressPerCall = 64;
// The destructor lets connections that are still being set up finish. This is the max number of
// times that it waits for a millisecond.
constexpr int kLastProgress = 50;
// Max wait while operations are in flight. Progress must run often, because it also drives UCX's
// keepalive and, where UCX emulates reads, the reads of peers.
constexpr absl::Duration kLongestWaitInFlight = absl::Milliseconds(5);
// TcpGreetings lets two workers ask each other, before they connect, if they can. While no question
// is under way, Progress looks for new ones only once in this many calls, because each look is a
// system call.
constexpr int kCallsPerLook = 64;
// Longest time for which a disconnected connection is kept open to finish its setup.
constexpr absl::Duration kLongestLinger = absl::Seconds(10);

// A peer that has no connection yet, because TcpGreetings still asks whether the two workers can
// reach each other or has found that they can't. Holds the operations that wait for the connection.
struct GreetedPeer {
  struct KeyedRead {
    ReadOperation operation;
    std::string key;  // copy of the bytes at `operation.key`
  };
  std::string worker;     // address of the peer's UcxWorker
  uint64_t question = 0;  // number from TcpGreetings::Ask
  std::deque<KeyedRead> reads;
  std::deque<std::string> notes;
  absl::Status failure;
};

class UcxTransport : public Transport {
 public:
  ~UcxTransport() override;
  absl::Status Start(const UcxOptions& options);

  std::string name() const override { return absl::StrCat("ucx ", worker_->transports()); }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override {
    return worker_->Allocate(bytes);
  }
  absl::StatusOr<TransportMemory> RegisterDeviceMemory(std::byte* data, size_t bytes) override {
    return worker_->Register(data, bytes);
  }
  std::string address() const override { return PackUcxAddress(address_); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  void Disconnect(PeerId peer) override;
  absl::Status Reachable(PeerId peer) override;
  absl::StatusOr<std::string> Link(PeerId peer) override;
  void Read(ReadOperation operation) override;
  absl::Status SendNote(PeerId peer, absl::string_view note) override;
  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override {
    handler_ = std::move(handler);
  }
  bool Progress() override;
  void Wait(absl::Duration timeout) override;
  void Wake() override { worker_->Wake(); }

 private:
  UcxConnection* Find(PeerId id);
  GreetedPeer* FindGreeted(PeerId id);
  absl::Status MakeConnection(PeerId id, absl::string_view worker);
  void EndGreeting(PeerId id, absl::Status greeted);
  void EndReads(GreetedPeer* peer, const absl::Status& why);
  struct Lingering {
    std::unique_ptr<UcxConnection> connection;
    absl::Time until;
  };
  static bool LetGo(const Lingering& lingering, absl::Time now);

  std::function<void(absl::string_view)> handler_;
  PeerId next_peer_ = 0;
  UcxAddress address_;
  int calls_until_look_ = 0;
  std::map<PeerId, GreetedPeer> greeted_;  // peers that have no connection in peers_ yet
  std::map<PeerId, std::unique_ptr<UcxConnection>> peers_;
  // Connections that are to be closed later: they were disconnected while they were still being set
  // up, or failed at that time. If such a connection were closed before the peer's answer arrives,
  // UCX 1.13 would abort the peer's process ("got REP message", ucp_request.c) if the peer is an
  // older worker (ucx_failures). The connections in this list use no memory outside of themselves.
  std::vector<Lingering> lingering_;
  EndedReads ended_;
  std::deque<std::string> notes_;
  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<TcpGreetings> greetings_;  // null without TCP
};

absl::Status UcxTransport::Start(const UcxOptions& options) {
  ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(options, [this](absl::string_view note) {
                     notes_.emplace_back(note);
                   }));
  worker_ = std::move(worker);
  address_.worker = worker_->address();
  address_.sysv = worker_->Has("sysv");
  address_.posix = worker_->Has("posix");
  NameThisMachine(&address_);
  if (worker_->listens_at().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto ports, PortRange::Parse(options.ports));
  ASSIGN_OR_RETURN(auto greetings, TcpGreetings::Listen(worker_->listens_at(), ports));
  greetings_ = std::move(greetings);
  address_.greeted_as = greetings_->id();
  address_.tcp = greetings_->places();
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  handler_ = nullptr;
  while (!greeted_.empty()) Disconnect(greeted_.begin()->first);
  greetings_.reset();  // peers can no longer ask to connect
  while (!peers_.empty()) Disconnect(peers_.begin()->first);
  if (worker_ == nullptr) return;
  // Gives connections that are still being set up time to finish. If they were closed now, UCX 1.13
  // might abort the peer's process (see lingering_).
  for (int i = 0, quiet = 0; i < kLastProgress && (quiet < 3 || !lingering_.empty()); ++i) {
    quiet = Progress() ? 0 : quiet + 1;
    if (quiet > 0) Wait(absl::Milliseconds(1));
  }
  for (const Lingering& peer : lingering_) {
    while (!LetGo(peer, absl::InfiniteFuture())) ProgressUcx(worker_->handle());
  }
  lingering_.clear();
}

absl::StatusOr<PeerId> UcxTransport::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const auto peer, UnpackUcxAddress(address));
  const std::vector<TcpWay> ways = TcpWays(address_, peer);
  if (ways.empty()) {
    RETURN_IF_ERROR(MakeConnection(next_peer_, peer.worker));
    return next_peer_++;
  }
  const PeerId id = next_peer_++;
  GreetedPeer& greeted = greeted_[id];
  greeted.worker = peer.worker;
  greeted.question =
      greetings_->Ask(peer.greeted_as, ways, SteadyNow(),
                      [this, id](absl::Status status) { EndGreeting(id, std::move(status)); });
  return id;
}

absl::Status UcxTransport::MakeConnection(PeerId id, absl::string_view worker) {
  ASSIGN_OR_RETURN(auto connection, UcxConnection::Create(worker, worker_.get(), &ended_));
  if (absl::Status failure = connection->failure(); !failure.ok()) {
    lingering_.push_back({std::move(connection), SteadyNow()});  // Progress closes it.
    return failure;
  }
  peers_[id] = std::move(connection);
  return absl::OkStatus();
}

void UcxTransport::EndGreeting(PeerId id, absl::Status status) {
  GreetedPeer& greeted = greeted_.at(id);
  if (status.ok()) status = MakeConnection(id, greeted.worker);
  if (!status.ok()) {
    greeted.failure = std::move(status);
    EndReads(&greeted, greeted.failure);
    return;
  }
  UcxConnection* const peer = Find(id);
  // Ignores the status: if a note can't be sent, the connection fails, and the next call of
  // SendNote returns that error.
  for (const std::string& note : greeted.notes) (void)peer->SendNote(note);
  for (auto& [operation, key] : greeted.reads) {
    operation.key = key;
    peer->Read(std::move(operation));
  }
  greeted_.erase(id);
}

absl::Status UcxTransport::Reachable(PeerId id) {
  const GreetedPeer* const greeted = FindGreeted(id);
  return greeted == nullptr ? absl::OkStatus() : greeted->failure;
}

void UcxTransport::EndReads(GreetedPeer* peer, const absl::Status& why) {
  for (auto& [operation, key] : peer->reads) ended_.Add(std::move(operation), why);
  peer->reads.clear();
}

GreetedPeer* UcxTransport::FindGreeted(PeerId id) {
  const auto it = greeted_.find(id);
  return it == greeted_.end() ? nullptr : &it->second;
}

UcxConnection* UcxTransport::Find(PeerId id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

absl::Status UcxTransport::SendNote(PeerId id, absl::string_view bytes) {
  if (bytes.size() > kMaxNoteBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a note of ", bytes.size(), " bytes; the limit is ", kMaxNoteBytes));
  }
  if (GreetedPeer* greeted = FindGreeted(id)) {
    RETURN_IF_ERROR(greeted->failure);
    if (greeted->notes.size() >= kMaxNotesUnderWay) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxNotesUnderWay, " notes wait for this peer"));
    }
    greeted->notes.emplace_back(bytes);
    return absl::OkStatus();
  }
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  return peer->SendNote(bytes);
}

void UcxTransport::Read(ReadOperation operation) {
  if (UcxConnection* peer = Find(operation.peer)) {
    peer->Read(std::move(operation));
    return;
  }
  GreetedPeer* const greeted = FindGreeted(operation.peer);
  std::string key(std::exchange(operation.key, {}));
  if (greeted != nullptr && greeted->failure.ok()) {
    greeted->reads.push_back({std::move(operation), std::move(key)});
    return;
  }
  ended_.Add(std::move(operation),
             greeted != nullptr ? greeted->failure : absl::UnavailableError("no such peer"));
}

// Closes a connection that was disconnected during its setup (see lingering_). Does nothing as long
// as the setup is not complete or notes are still to be sent, unless the connection has failed or
// its time is over. Returns true once the connection is closed and may be destroyed.
bool UcxTransport::LetGo(const Lingering& lingering, absl::Time now) {
  UcxConnection* const connection = lingering.connection.get();
  if (now >= lingering.until) {
    connection->Fail(absl::UnavailableError("its setup did not end in time"));
  }
  if (connection->lingers()) return false;
  connection->Close();
  return connection->gone();
}

void UcxTransport::Disconnect(PeerId id) {
  const absl::Status why = absl::UnavailableError("disconnected before the read was done");
  if (GreetedPeer* greeted = FindGreeted(id)) {
    greetings_->Forget(greeted->question);
    EndReads(greeted, why);
    greeted_.erase(id);
    ended_.Report(id);
    return;
  }
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return;
  peer->EndReads(why);
  if (peer->lingers()) {
    lingering_.push_back({std::move(peers_[id]), SteadyNow() + kLongestLinger});
    peers_.erase(id);
    ended_.Report(id);
    return;
  }
  peer->Fail(why);
  peer->Close();
  // Wait until UCX has reported every operation: UCX may still write to the memory of an operation
  // that it has not reported.
  while (!peer->gone()) {
    ProgressUcx(worker_->handle());
    peer->Close();
  }
  peers_.erase(id);
  ended_.Report(id);
}

bool UcxTransport::Progress() {
  bool moved = false;
  if (greetings_ != nullptr && (greetings_->busy() || --calls_until_look_ < 0)) {
    calls_until_look_ = kCallsPerLook;
    moved |= greetings_->Progress(SteadyNow());
  }
  size_t budget = kBytesPerProgress;
  for (auto& [id, peer] : peers_) moved |= peer->Post(&budget);
  for (int i = 0; i < kProgressPerCall && ProgressUcx(worker_->handle()) != 0; ++i) moved = true;
  for (auto& [id, peer] : peers_) {
    if (peer->failure().ok()) continue;
    peer->EndReads(peer->failure());
    peer->Close();
  }
  if (!lingering_.empty()) {
    std::erase_if(lingering_,
                  [now = SteadyNow()](const Lingering& peer) { return LetGo(peer, now); });
  }
  moved |= ended_.Report(EndedReads::kAll);
  std::deque<std::string> notes;
  notes.swap(notes_);
  for (const std::string& note : notes) {
    if (handler_) handler_(note);
    moved = true;
  }
  return moved;
}

void UcxTransport::Wait(absl::Duration timeout) {
  if (!ended_.empty() || !notes_.empty()) return;
  if (!lingering_.empty()) timeout = std::min(timeout, kLongestWaitInFlight);
  for (const auto& [id, peer] : peers_) {
    if (peer->ready()) return;
    if (peer->in_flight()) timeout = std::min(timeout, kLongestWaitInFlight);
  }
  if (greetings_ == nullptr) {
    worker_->Wait(timeout, -1);
    return;
  }
  const absl::Time deadline = greetings_->deadline();
  if (deadline < absl::InfiniteFuture()) timeout = std::min(timeout, deadline - SteadyNow());
  if (worker_->Wait(timeout, greetings_->fd())) calls_until_look_ = 0;
}

absl::StatusOr<std::string> UcxTransport::Link(PeerId id) {
  if (FindGreeted(id) != nullptr) {
    return absl::UnavailableError("nothing has gone to this peer yet");
  }
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  return peer->Link();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>();
  RETURN_IF_ERROR(transport->Start(options));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace baton
