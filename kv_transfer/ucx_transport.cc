#include "kv_transfer/ucx_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "kv_transfer/byte_packer.h"
#include "kv_transfer/memory_budget.h"
#include "kv_transfer/ucx_settings.h"

#if defined(__SANITIZE_ADDRESS__)
// Workers that stay (see the destructor).
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libucp.so\nleak:libuct.so\nleak:libucs.so\n";
}
#endif

namespace baton {
namespace {

constexpr unsigned kNoteId = 0xBA;
constexpr uint32_t kAddressMagic = 0xBA70ACC5;
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

absl::string_view LinkOfUcxTransport(absl::string_view name) {
  for (const absl::string_view shm : {"sysv", "posix", "cma", "knem", "xpmem", "self"}) {
    if (name == shm) return "shm";
  }
  if (absl::StartsWith(name, "cuda_ipc")) return "nvlink";
  for (const absl::string_view rdma : {"rc", "dc", "ud"}) {
    if (absl::StartsWith(name, rdma)) return "rdma";
  }
  return name;
}

// Reads what ucp_ep_print_info writes; 1.13 has no call that tells. A line
// `lane[0]: 0:sysv/memory.0 md[0] -> md[0]/sysv/sysdev[255] am ...` names a lane's transport, a
// line `get[0]: ...` a lane that can read; without one, reads are emulated on the lane of active
// messages. `mapped`: the peer's memory is in our address space, so they are copies whatever lanes
// there are.
std::string LinkFromInfo(absl::string_view info, bool mapped) {
  std::map<std::string, std::string> lanes;
  std::string messages, reads;
  for (const absl::string_view line : absl::StrSplit(info, '\n')) {
    const size_t open = line.find('['), close = line.find("]:");
    if (open == line.npos || close == line.npos || close < open) continue;
    const std::string index(line.substr(open + 1, close - open - 1));
    if (absl::EndsWith(line.substr(0, open), " lane")) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      for (size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != "->") continue;
        const std::vector<std::string> parts = absl::StrSplit(words[i + 1], '/');
        if (parts.size() > 1) lanes[index] = parts[1];
      }
      if (absl::c_linear_search(words, "am")) messages = index;
    } else if (absl::EndsWith(line.substr(0, open), " get") && reads.empty()) {
      reads = index;
    }
  }
  const bool copies = LinkOfUcxTransport(lanes[reads]) == "shm";
  const std::string& lane = reads.empty() || (copies && !mapped) ? messages : reads;
  return std::string(LinkOfUcxTransport(lanes[lane]));
}

class UcxTransport : public Transport {
 public:
  explicit UcxTransport(std::string tls) : tls_(std::move(tls)) {}
  ~UcxTransport() override;
  absl::Status Start(const UcxOptions& options);

  std::string name() const override { return absl::StrCat("ucx ", tls_); }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override;
  std::string address() const override { return address_; }
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
  void Wake() override;

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
  struct Done {
    PeerId peer;
    ReadOperation operation;
    absl::Status status;
  };

  static ucs_status_t OnNote(void* self, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
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
  bool ReportDone(PeerId only);

  const std::string tls_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1;
  int wake_fd_ = -1;
  std::string address_;
  std::function<void(absl::string_view)> handler_;
  std::vector<ucp_mem_h> memory_;
  PeerId next_peer_ = 0;
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  // Disconnected while still being wired up. UCX 1.13 aborts the process of a peer whose answer to
  // that can't be delivered any more ("got REP message", ucp_request.c), so these are closed once
  // it has been. Nothing of theirs points outside.
  std::vector<std::unique_ptr<Peer>> lingering_;
  std::deque<Done> done_;
  std::deque<std::string> notes_;
};

absl::Status UcxTransport::Start(const UcxOptions& options) {
  TameUcx();
  const auto config = UcxSettings(options);
  if (!config.ok()) return config.status();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "baton";
  ucs_status_t status = ucp_init(&params, *config, &context_);
  ucp_config_release(*config);
  if (status != UCS_OK) {
    context_ = nullptr;
    return UcxError(absl::StatusCode::kInvalidArgument,
                    absl::StrCat("starting with transports '", options.tls, "' and interfaces '",
                                 options.net_devices, "'"),
                    status);
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Made on one thread, used on another, never by two at once.
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return UcxError(absl::StatusCode::kUnavailable, "creating a worker", status);
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kNoteId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = OnNote;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "taking active messages", status);
  }
  status = ucp_worker_get_efd(worker_, &worker_fd_);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "asking for its event descriptor", status);
  }
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &address_bytes);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "asking for its address", status);
  }
  const absl::string_view raw(reinterpret_cast<const char*>(address), address_bytes);
  BytePacker packer;
  packer.Put<uint32_t>(kAddressMagic);
  packer.Put<uint64_t>(Hash64(raw));
  packer.PutString(raw);
  address_ = packer.Take();
  ucp_worker_release_address(worker_, address);
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  handler_ = nullptr;
  while (!peers_.empty()) Disconnect(peers_.begin()->first);
  if (worker_ == nullptr) {
    if (context_ != nullptr) ucp_cleanup(context_);
    return;
  }
  // What is being wired up gets a moment, from either side: see lingering_.
  for (int i = 0, quiet = 0; i < kLastProgress && (quiet < 3 || !lingering_.empty()); ++i) {
    quiet = Progress() ? 0 : quiet + 1;
    if (quiet > 0) Wait(absl::Milliseconds(1));
  }
  for (auto& peer : lingering_) {
    peer->failure = absl::UnavailableError("the transport ends");
    while (!LetGo(peer.get())) ucp_worker_progress(worker_);
  }
  for (ucp_mem_h memory : memory_) ucp_mem_unmap(context_, memory);
  // With TCP the worker stays to the end of the process, its sockets too: UCX 1.13 aborts in
  // ucp_worker_destroy where an answer to a peer that went away while connecting is still queued.
  if (tls_ == "shm") {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::StatusOr<TransportMemory> UcxTransport::Allocate(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("no bytes asked for");
  const absl::Status fits = CheckMemoryFor(bytes);
  if (!fits.ok()) return fits;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h handle = nullptr;
  ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return UcxError(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("allocating ", bytes, " bytes, of ", AvailableMemoryBytes(), " available"),
        status);
  }
  memory_.push_back(handle);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(handle, &attributes);
  if (status != UCS_OK) return UcxError(absl::StatusCode::kUnavailable, "memory query", status);
  const uintptr_t start = reinterpret_cast<uintptr_t>(attributes.address);
  BATON_CHECK(start % 4096 == 0) << start;
  void* packed = nullptr;
  size_t packed_bytes = 0;
  status = ucp_rkey_pack(context_, handle, &packed, &packed_bytes);
  if (status != UCS_OK) return UcxError(absl::StatusCode::kUnavailable, "packing a key", status);
  BytePacker key;
  key.Put<uint64_t>(start);
  key.Put<uint64_t>(bytes);
  key.PutString({static_cast<const char*>(packed), packed_bytes});
  ucp_rkey_buffer_release(packed);
  return TransportMemory{static_cast<std::byte*>(attributes.address), bytes, key.Take()};
}

absl::StatusOr<PeerId> UcxTransport::Connect(absl::string_view address) {
  ByteUnpacker in(address);
  const uint32_t magic = in.Get<uint32_t>();
  const uint64_t sum = in.Get<uint64_t>();
  const absl::string_view raw = in.GetString();
  if (!in.at_end() || magic != kAddressMagic || sum != Hash64(raw)) {
    return absl::InvalidArgumentError("not a UCX worker address");
  }
  auto peer = std::make_unique<Peer>();
  peer->id = next_peer_;
  peer->transport = this;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(raw.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = peer.get();
  const ucs_status_t status = ucp_ep_create(worker_, &params, &peer->endpoint);
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

ucs_status_t UcxTransport::OnNote(void* self, const void*, size_t header_bytes, void* data,
                                  size_t bytes, const ucp_am_recv_param_t* param) {
  // Ours are eager and short; anything else is not from a transport of ours, and dropped.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 ||
      bytes > kMaxNoteBytes) {
    return UCS_OK;
  }
  static_cast<UcxTransport*>(self)->notes_.emplace_back(static_cast<const char*>(data), bytes);
  return UCS_OK;
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
  void* request = ucp_am_send_nbx(peer->endpoint, kNoteId, nullptr, 0, note->bytes.data(),
                                  note->bytes.size(), &param);
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
    done_.push_back({operation.peer, std::move(operation), std::move(status)});
    return;
  }
  auto read = std::make_unique<Posted>();
  read->operation = std::move(operation);
  read->peer = peer;
  read->key = key;
  peer->queue.push_back(std::move(read));
}

void UcxTransport::Report(std::unique_ptr<Posted> read) {
  done_.push_back({read->peer->id, std::move(read->operation), std::move(read->error)});
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
    read->error = UcxError(absl::StatusCode::kUnavailable, "reading", status);
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
  } else if (peer->failure.ok()) {
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
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
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
    ReportDone(id);
    return;
  }
  if (peer->failure.ok()) peer->failure = why;
  StartClose(peer);
  // Nothing but UCX's own reports ends this: what it has not reported it may still write.
  while (!peer->closed || peer->pieces_under_way > 0 || peer->notes_under_way > 0 ||
         peer->wiring == Peer::Wiring::kUnderWay) {
    ucp_worker_progress(worker_);
    FinishClose(peer);
  }
  BATON_CHECK(peer->posted.empty()) << peer->posted.size();
  for (auto& [bytes, key] : peer->keys) ucp_rkey_destroy(key.rkey);
  peers_.erase(id);
  ReportDone(id);
}

bool UcxTransport::ReportDone(PeerId only) {
  std::deque<Done> done, kept;
  done.swap(done_);
  bool any = false;
  for (Done& one : done) {
    if (only >= 0 && one.peer != only) {
      kept.push_back(std::move(one));
      continue;
    }
    any = true;
    one.operation.done(std::move(one.status));
  }
  // What the callbacks posted and failed at once comes after what was there before.
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) done_.push_front(std::move(*it));
  return any;
}

bool UcxTransport::Progress() {
  bool moved = false;
  size_t budget = kBytesPerProgress;
  for (auto& [id, peer] : peers_) moved |= Post(peer.get(), &budget);
  for (int i = 0; i < kProgressPerCall && ucp_worker_progress(worker_) != 0; ++i) moved = true;
  for (auto& [id, peer] : peers_) {
    if (peer->failure.ok()) continue;
    FailQueue(peer.get(), peer->failure);
    StartClose(peer.get());
    FinishClose(peer.get());
  }
  lingering_.erase(std::remove_if(lingering_.begin(), lingering_.end(),
                                  [this](const auto& peer) { return LetGo(peer.get()); }),
                   lingering_.end());
  moved |= ReportDone(-1);
  std::deque<std::string> notes;
  notes.swap(notes_);
  for (const std::string& note : notes) {
    if (handler_) handler_(note);
    moved = true;
  }
  return moved;
}

void UcxTransport::Wait(absl::Duration timeout) {
  if (!done_.empty() || !notes_.empty()) return;
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
  if (ucp_worker_arm(worker_) != UCS_OK) return;
  const timespec limit = absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  pollfd events[] = {{worker_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  if (ppoll(events, 2, &limit, nullptr) > 0 && (events[1].revents & POLLIN) != 0) {
    uint64_t wakes = 0;
    (void)!read(wake_fd_, &wakes, sizeof(wakes));
  }
}

void UcxTransport::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
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
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  BATON_CHECK(stream != nullptr);
  ucp_ep_print_info(peer->endpoint, stream);
  std::fclose(stream);
  peer->link = LinkFromInfo({text, bytes}, mapped);
  std::free(text);
  return peer->link;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>(options.tls);
  const absl::Status started = transport->Start(options);
  if (!started.ok()) return started;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace baton
