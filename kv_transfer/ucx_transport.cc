#include "kv_transfer/ucx_transport.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/strings/str_cat.h"
#include "kv_transfer/ended_reads.h"
#include "kv_transfer/ucx_connection.h"
#include "kv_transfer/ucx_worker.h"

namespace baton {
namespace {

// Copied inside one call, where reads are copies out of mapped memory: little enough that whoever
// is told of it finds it in the cache.
constexpr size_t kBytesPerProgress = 512 << 10;
constexpr int kProgressPerCall = 64;
constexpr int kLastProgress = 50;  // times a millisecond, for what is still being wired up
// Progress also drives keepalive and, for peers, emulated reads.
constexpr absl::Duration kLongestWaitInFlight = absl::Milliseconds(5);

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
  std::string address() const override { return worker_->address(); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  void Disconnect(PeerId peer) override;
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
  static bool LetGo(UcxConnection* connection);

  std::function<void(absl::string_view)> handler_;
  PeerId next_peer_ = 0;
  std::map<PeerId, std::unique_ptr<UcxConnection>> peers_;
  // Disconnected while still being wired up. UCX 1.13 aborts the process of a peer whose answer to
  // that can't be delivered any more ("got REP message", ucp_request.c), so these are closed once
  // it has been. Nothing of theirs points outside.
  std::vector<std::unique_ptr<UcxConnection>> lingering_;
  EndedReads ended_;
  std::deque<std::string> notes_;
  std::unique_ptr<UcxWorker> worker_;
};

absl::Status UcxTransport::Start(const UcxOptions& options) {
  auto worker =
      UcxWorker::Create(options, [this](absl::string_view note) { notes_.emplace_back(note); });
  if (!worker.ok()) return worker.status();
  worker_ = *std::move(worker);
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  handler_ = nullptr;
  while (!peers_.empty()) Disconnect(peers_.begin()->first);
  if (worker_ == nullptr) return;
  // What is being wired up gets a moment, from either side: see lingering_.
  for (int i = 0, quiet = 0; i < kLastProgress && (quiet < 3 || !lingering_.empty()); ++i) {
    quiet = Progress() ? 0 : quiet + 1;
    if (quiet > 0) Wait(absl::Milliseconds(1));
  }
  for (auto& peer : lingering_) {
    peer->Fail(absl::UnavailableError("the transport ends"));
    while (!LetGo(peer.get())) ucp_worker_progress(worker_->handle());
  }
  lingering_.clear();
}

absl::StatusOr<PeerId> UcxTransport::Connect(absl::string_view address) {
  const auto raw = UcxWorker::OpenAddress(address);
  if (!raw.ok()) return raw.status();
  auto connection = UcxConnection::Create(*raw, worker_.get(), &ended_);
  if (!connection.ok()) return connection.status();
  peers_[next_peer_] = *std::move(connection);
  return next_peer_++;
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
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  return peer->SendNote(bytes);
}

void UcxTransport::Read(ReadOperation operation) {
  if (UcxConnection* peer = Find(operation.peer)) {
    peer->Read(std::move(operation));
    return;
  }
  operation.key = {};
  ended_.Add(std::move(operation), absl::UnavailableError("no such peer"));
}

// Closes a lingering connection when it can be; true when it is gone.
bool UcxTransport::LetGo(UcxConnection* connection) {
  if (connection->lingers()) return false;
  connection->Close();
  return connection->gone();
}

void UcxTransport::Disconnect(PeerId id) {
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return;
  const absl::Status why = absl::UnavailableError("disconnected before the read was done");
  peer->EndReads(why);
  if (peer->lingers()) {
    lingering_.push_back(std::move(peers_[id]));
    peers_.erase(id);
    ended_.Report(id);
    return;
  }
  peer->Fail(why);
  peer->Close();
  // Nothing but UCX's own reports ends this: what it has not reported it may still write.
  while (!peer->gone()) {
    ucp_worker_progress(worker_->handle());
    peer->Close();
  }
  peers_.erase(id);
  ended_.Report(id);
}

bool UcxTransport::Progress() {
  bool moved = false;
  size_t budget = kBytesPerProgress;
  for (auto& [id, peer] : peers_) moved |= peer->Post(&budget);
  for (int i = 0; i < kProgressPerCall && ucp_worker_progress(worker_->handle()) != 0; ++i)
    moved = true;
  for (auto& [id, peer] : peers_) {
    if (peer->failure().ok()) continue;
    peer->EndReads(peer->failure());
    peer->Close();
  }
  lingering_.erase(std::remove_if(lingering_.begin(), lingering_.end(),
                                  [](const auto& peer) { return LetGo(peer.get()); }),
                   lingering_.end());
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
  worker_->Wait(timeout);
}

absl::StatusOr<std::string> UcxTransport::Link(PeerId id) {
  UcxConnection* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  return peer->Link();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>();
  const absl::Status started = transport->Start(options);
  if (!started.ok()) return started;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace baton
