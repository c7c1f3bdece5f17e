#include "kv_transfer/ucx_transport.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "kv_transfer/byte_packer.h"
#include "kv_transfer/ended_reads.h"
#include "kv_transfer/ucx_link.h"
#include "kv_transfer/ucx_settings.h"
#include "kv_transfer/ucx_worker.h"

namespace baton {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Copied inside one call, where reads are copies out of mapped memory: little enough that whoever
// is told of it finds it in the cache.
constexpr size_t kBytesPerProgress = 512 << 10;
constexpr int kProgressPerCall = 64;
constexpr int kLastProgress = 50;  // times a millisecond, for what is still being wired up
// Posted to one peer. UCX's emulated reads collapse when many large ones queue on a socket.
constexpr size_t kWindowShm = 16 << 20, kWindowTcp = 4 << 20;
constexpr int kOperationsShm = 64, kOperationsTcp = 32;
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
  struct Key {
    uint64_t base = 0;
    uint64_t bytes = 0;
    ucp_rkey_h rkey = nullptr;
  };
  struct Peer;
  struct Posted {  // one read
    ReadOperation operation;
    Peer* peer = nullptr;
    const Key* key = nullptr;
    size_t posted = 0;  // bytes handed to UCX
    int pieces = 0;     // handed to UCX and not reported
    absl::Status error;
  };
  struct Piece {
    Posted* read;
    size_t bytes;
  };
  struct Note {
    Peer* peer;
    std::string bytes;
  };
  struct Peer {
    PeerId id = -1;
    UcxTransport* transport = nullptr;
    ucp_ep_h endpoint = nullptr;
    void* closing = nullptr;  // the request of a close under way
    bool closed = false;
    absl::Status failure;
    bool used = false;  // something has arrived there
    // The first read of a connection goes alone, one byte into here; all others wait for it.
    enum class Wiring { kNot, kUnderWay, kDone } wiring = Wiring::kNot;
    std::byte probe{};
    std::string link;
    std::map<std::string, Key, std::less<>> keys;
    std::deque<std::unique_ptr<Posted>> queue;          // not all handed to UCX
    std::map<Posted*, std::unique_ptr<Posted>> posted;  // handed to UCX, not all reported
    size_t bytes_under_way = 0;
    int pieces_under_way = 0;
    int notes_under_way = 0;
  };

  static void OnPiece(void* request, ucs_status_t status, void* piece);
  static void OnNoteSent(void* request, ucs_status_t status, void* note);
  static void OnProbe(void* request, ucs_status_t status, void* peer);
  static void OnEndpointError(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  Peer* Find(PeerId id);
  absl::StatusOr<const Key*> Unpack(Peer* peer, absl::string_view key);
  bool Post(Peer* peer, size_t* budget);
  void PieceDone(std::unique_ptr<Piece> piece, ucs_status_t status);
  void Report(std::unique_ptr<Posted> read);
  void Probe(Peer* peer, const Key* key);
  void ProbeDone(Peer* peer, ucs_status_t status);
  bool LetGo(Peer* peer);
  void FailQueue(Peer* peer, const absl::Status& why);
  void StartClose(Peer* peer);
  void FinishClose(Peer* peer);

  std::function<void(absl::string_view)> handler_;
  PeerId next_peer_ = 0;
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  // Disconnected while still being wired up. UCX 1.13 aborts the process of a peer whose answer to
  // that can't be delivered any more ("got REP message", ucp_request.c), so these are closed once
  // it has been. Nothing of theirs points outside.
  std::vector<std::unique_ptr<Peer>> lingering_;
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
    peer->failure = absl::UnavailableError("the transport ends");
    while (!LetGo(peer.get())) ucp_worker_progress(worker_->handle());
  }
}

absl::StatusOr<PeerId> UcxTransport::Connect(absl::string_view address) {
  const auto raw = UcxWorker::OpenAddress(address);
  if (!raw.ok()) return raw.status();
  auto peer = std::make_unique<Peer>();
  peer->id = next_peer_;
  peer->transport = this;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(raw->data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = peer.get();
  const ucs_status_t status = ucp_ep_create(worker_->handle(), &params, &peer->endpoint);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "connecting", status);
  }
  peers_[next_peer_] = std::move(peer);
  return next_peer_++;
}

UcxTransport::Peer* UcxTransport::Find(PeerId id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

void UcxTransport::OnEndpointError(void* arg, ucp_ep_h, ucs_status_t status) {
  Peer* peer = static_cast<Peer*>(arg);
  if (peer->failure.ok()) {
    peer->failure = UcxError(absl::StatusCode::kUnavailable, "the peer is gone", status);
  }
}

void UcxTransport::OnNoteSent(void* request, ucs_status_t status, void* arg) {
  const std::unique_ptr<Note> note(static_cast<Note*>(arg));
  --note->peer->notes_under_way;
  if (status == UCS_OK) note->peer->used = true;
  ucp_request_free(request);
}

absl::Status UcxTransport::SendNote(PeerId id, absl::string_view bytes) {
  if (bytes.size() > kMaxNoteBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a note of ", bytes.size(), " bytes; the limit is ", kMaxNoteBytes));
  }
  Peer* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  if (!peer->failure.ok()) return peer->failure;
  if (peer->notes_under_way >= kMaxNotesUnderWay) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxNotesUnderWay, " notes wait for this peer"));
  }
  auto note = std::make_unique<Note>(Note{peer, std::string(bytes)});
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = OnNoteSent;
  param.user_data = note.get();
  void* request = ucp_am_send_nbx(peer->endpoint, UcxWorker::kNoteId, nullptr, 0,
                                  note->bytes.data(), note->bytes.size(), &param);
  if (request == nullptr) {
    peer->used = true;
    return absl::OkStatus();
  }
  if (UCS_PTR_IS_ERR(request)) {
    if (peer->failure.ok()) {
      peer->failure =
          UcxError(absl::StatusCode::kUnavailable, "sending a note", UCS_PTR_STATUS(request));
    }
    return peer->failure;
  }
  ++peer->notes_under_way;
  (void)note.release();  // OnNoteSent has it
  return absl::OkStatus();
}

absl::StatusOr<const UcxTransport::Key*> UcxTransport::Unpack(Peer* peer, absl::string_view key) {
  const auto known = peer->keys.find(key);
  if (known != peer->keys.end()) return &known->second;
  ByteUnpacker in(key);
  Key unpacked;
  unpacked.base = in.Get<uint64_t>();
  unpacked.bytes = in.Get<uint64_t>();
  const std::string packed(in.GetString());
  if (!in.at_end() || packed.empty()) return absl::InvalidArgumentError("not a key of memory");
  const ucs_status_t status = ucp_ep_rkey_unpack(peer->endpoint, packed.data(), &unpacked.rkey);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "unpacking a key", status);
  }
  return &peer->keys.emplace(std::string(key), unpacked).first->second;
}

void UcxTransport::Read(ReadOperation operation) {
  Peer* peer = Find(operation.peer);
  absl::Status status = peer == nullptr ? absl::UnavailableError("no such peer") : peer->failure;
  const Key* key = nullptr;
  if (status.ok()) {
    const auto unpacked = Unpack(peer, operation.key);
    status = unpacked.status();
    if (unpacked.ok()) key = *unpacked;
  }
  // UCX would carry a read of any address to the peer and have it touched there.
  if (status.ok() &&
      (operation.offset > key->bytes || operation.bytes > key->bytes - operation.offset)) {
    status = absl::InvalidArgumentError(absl::StrCat("a read of ", operation.bytes, " bytes at ",
                                                     operation.offset, " of ", key->bytes));
  }
  operation.key = {};
  if (!status.ok() || operation.bytes == 0) {
    ended_.Add(std::move(operation), std::move(status));
    return;
  }
  auto read = std::make_unique<Posted>();
  read->operation = std::move(operation);
  read->peer = peer;
  read->key = key;
  peer->queue.push_back(std::move(read));
}

void UcxTransport::Report(std::unique_ptr<Posted> read) {
  ended_.Add(std::move(read->operation), std::move(read->error));
}

void UcxTransport::PieceDone(std::unique_ptr<Piece> piece, ucs_status_t status) {
  Posted* read = piece->read;
  Peer* peer = read->peer;
  --read->pieces;
  --peer->pieces_under_way;
  peer->bytes_under_way -= piece->bytes;
  if (status == UCS_OK) {
    peer->used = true;
  } else if (read->error.ok()) {
    read->error = UcxError(status == UCS_ERR_UNSUPPORTED ? absl::StatusCode::kUnimplemented
                                                         : absl::StatusCode::kUnavailable,
                           "reading", status);
  }
  const auto it = peer->posted.find(read);
  if (it == peer->posted.end() || read->pieces > 0) return;
  std::unique_ptr<Posted> owned = std::move(it->second);
  peer->posted.erase(it);
  Report(std::move(owned));
}

void UcxTransport::OnPiece(void* request, ucs_status_t status, void* arg) {
  std::unique_ptr<Piece> piece(static_cast<Piece*>(arg));
  UcxTransport* self = piece->read->peer->transport;
  self->PieceDone(std::move(piece), status);
  ucp_request_free(request);
}

void UcxTransport::OnProbe(void* request, ucs_status_t status, void* arg) {
  Peer* peer = static_cast<Peer*>(arg);
  peer->transport->ProbeDone(peer, status);
  ucp_request_free(request);
}

void UcxTransport::ProbeDone(Peer* peer, ucs_status_t status) {
  peer->wiring = Peer::Wiring::kDone;
  if (status == UCS_OK) {
    peer->used = true;
  } else if (status != UCS_ERR_UNSUPPORTED &&
             peer->failure.ok()) {  // what the read itself will say
    peer->failure = UcxError(absl::StatusCode::kUnavailable, "reading", status);
  }
}

void UcxTransport::Probe(Peer* peer, const Key* key) {
  peer->wiring = Peer::Wiring::kUnderWay;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnProbe;
  param.user_data = peer;
  void* request = ucp_get_nbx(peer->endpoint, &peer->probe, 1, key->base, key->rkey, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    ProbeDone(peer, request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
  }
}

// Closes a lingering connection when it can be; true when it is gone.
bool UcxTransport::LetGo(Peer* peer) {
  const bool busy = peer->wiring == Peer::Wiring::kUnderWay || peer->notes_under_way > 0;
  if (busy && peer->failure.ok()) return false;
  StartClose(peer);
  FinishClose(peer);
  if (!peer->closed || busy) return false;
  for (auto& [bytes, key] : peer->keys) ucp_rkey_destroy(key.rkey);
  return true;
}

// Hands reads to UCX as far as the peer's window and the call's budget go.
bool UcxTransport::Post(Peer* peer, size_t* budget) {
  bool moved = false;
  if (peer->wiring != Peer::Wiring::kDone) {
    if (peer->queue.empty() || !peer->failure.ok()) return false;
    if (peer->wiring == Peer::Wiring::kNot) Probe(peer, peer->queue.front()->key);
    if (peer->wiring == Peer::Wiring::kUnderWay) return false;
  }
  const bool shm = peer->link == "shm";
  while (!peer->queue.empty() && *budget > 0 && peer->failure.ok() &&
         peer->bytes_under_way < (shm ? kWindowShm : kWindowTcp) &&
         peer->pieces_under_way < (shm ? kOperationsShm : kOperationsTcp)) {
    Posted* read = peer->queue.front().get();
    const size_t bytes = std::min(kPieceBytes, read->operation.bytes - read->posted);
    auto piece = std::make_unique<Piece>(Piece{read, bytes});
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = worker_->TypeOf(read->operation.local);
    param.cb.send = OnPiece;
    param.user_data = piece.get();
    void* request = ucp_get_nbx(peer->endpoint, read->operation.local + read->posted, bytes,
                                read->key->base + read->operation.offset + read->posted,
                                read->key->rkey, &param);
    moved = true;
    *budget -= std::min(*budget, bytes);
    read->posted += bytes;
    ++read->pieces;
    ++peer->pieces_under_way;
    peer->bytes_under_way += bytes;
    const bool last = read->posted == read->operation.bytes || UCS_PTR_IS_ERR(request);
    if (last) {
      peer->posted.emplace(read, std::move(peer->queue.front()));
      peer->queue.pop_front();
    }
    if (request == nullptr || UCS_PTR_IS_ERR(request)) {
      PieceDone(std::move(piece), request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
    } else {
      (void)piece.release();  // OnPiece has it
    }
  }
  return moved;
}

void UcxTransport::FailQueue(Peer* peer, const absl::Status& why) {
  while (!peer->queue.empty()) {
    std::unique_ptr<Posted> read = std::move(peer->queue.front());
    peer->queue.pop_front();
    if (read->error.ok()) read->error = why;
    if (read->pieces == 0) {
      Report(std::move(read));
    } else {
      peer->posted.emplace(read.get(), std::move(read));
    }
  }
}

// By force: only then does UCX report what it has in hand for a peer that does not answer.
void UcxTransport::StartClose(Peer* peer) {
  if (peer->closed || peer->closing != nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(peer->endpoint, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    if (request != nullptr) {
      Log(Severity::kWarning, "ucx_endpoint_close",
          {{"says", ucs_status_string(UCS_PTR_STATUS(request))}});
    }
    peer->closed = true;
  } else {
    peer->closing = request;
  }
}

void UcxTransport::FinishClose(Peer* peer) {
  if (peer->closing == nullptr || ucp_request_check_status(peer->closing) == UCS_INPROGRESS) {
    return;
  }
  ucp_request_free(peer->closing);
  peer->closing = nullptr;
  peer->closed = true;
}

void UcxTransport::Disconnect(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;
  const absl::Status why = absl::UnavailableError("disconnected before the read was done");
  FailQueue(peer, why);
  const bool wiring = peer->wiring == Peer::Wiring::kUnderWay || peer->notes_under_way > 0;
  if (wiring && peer->failure.ok() && peer->pieces_under_way == 0) {
    lingering_.push_back(std::move(peers_[id]));
    peers_.erase(id);
    ended_.Report(id);
    return;
  }
  if (peer->failure.ok()) peer->failure = why;
  StartClose(peer);
  // Nothing but UCX's own reports ends this: what it has not reported it may still write.
  while (!peer->closed || peer->pieces_under_way > 0 || peer->notes_under_way > 0 ||
         peer->wiring == Peer::Wiring::kUnderWay) {
    ucp_worker_progress(worker_->handle());
    FinishClose(peer);
  }
  BATON_CHECK(peer->posted.empty()) << peer->posted.size();
  for (auto& [bytes, key] : peer->keys) ucp_rkey_destroy(key.rkey);
  peers_.erase(id);
  ended_.Report(id);
}

bool UcxTransport::Progress() {
  bool moved = false;
  size_t budget = kBytesPerProgress;
  for (auto& [id, peer] : peers_) moved |= Post(peer.get(), &budget);
  for (int i = 0; i < kProgressPerCall && ucp_worker_progress(worker_->handle()) != 0; ++i)
    moved = true;
  for (auto& [id, peer] : peers_) {
    if (peer->failure.ok()) continue;
    FailQueue(peer.get(), peer->failure);
    StartClose(peer.get());
    FinishClose(peer.get());
  }
  lingering_.erase(std::remove_if(lingering_.begin(), lingering_.end(),
                                  [this](const auto& peer) { return LetGo(peer.get()); }),
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
    if (peer->wiring == Peer::Wiring::kUnderWay) timeout = std::min(timeout, kLongestWaitInFlight);
    if (!peer->queue.empty() && peer->wiring != Peer::Wiring::kUnderWay &&
        peer->pieces_under_way == 0) {
      return;
    }
    if (peer->pieces_under_way > 0 || peer->notes_under_way > 0 || peer->closing != nullptr) {
      timeout = std::min(timeout, kLongestWaitInFlight);
    }
  }
  worker_->Wait(timeout);
}

absl::StatusOr<std::string> UcxTransport::Link(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  if (!peer->failure.ok()) return peer->failure;
  if (!peer->used) return absl::UnavailableError("nothing has gone to this peer yet");
  bool mapped = true;
  for (const auto& [bytes, key] : peer->keys) {
    void* local = nullptr;
    mapped &= ucp_rkey_ptr(key.rkey, key.base, &local) == UCS_OK;
  }
  peer->link = UcxLinkOf(peer->endpoint, mapped);
  return peer->link;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>();
  const absl::Status started = transport->Start(options);
  if (!started.ok()) return started;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace baton
