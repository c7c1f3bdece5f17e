#include "kv_transfer/transport/ucx_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "kv_transfer/transport/byte_packer.h"
#include "kv_transfer/transport/ucx_link.h"
#include "kv_transfer/transport/ucx_settings.h"

namespace baton {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Max operations and bytes under way to one peer. UCX's emulated reads become very slow if many
// large ones queue on a socket.
constexpr size_t kWindowShm = 16 << 20, kWindowTcp = 4 << 20;
constexpr int kOperationsShm = 64, kOperationsTcp = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<UcxConnection>> UcxConnection::Create(absl::string_view address,
                                                                     UcxWorker* worker,
                                                                     EndedReads* ended) {
  std::unique_ptr<UcxConnection> connection(new UcxConnection(worker, ended));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = connection.get();
  UcxWordsHeld words;
  const ucs_status_t status = ucp_ep_create(worker->handle(), &params, &connection->endpoint_);
  if (status == UCS_ERR_UNREACHABLE) {
    connection->closed_ = true;
    return absl::UnavailableError(absl::StrCat(
        "no transport reaches the other worker: this one has --kv-transports=",
        worker->transports(), " and --kv-net-device=", worker->net_devices(),
        "; between machines both workers need the name of the network interface that reaches the "
        "other",
        words.Take()));
  }
  // Permission to open the peer's memory may be missing. UCX then returns UCS_ERR_SHMEM_SEGMENT,
  // which may also mean that the peer has ended. UCX 1.18 returns OK instead, although the endpoint
  // never carries anything. So UCX's messages are checked.
  const bool forbidden =
      (status == UCS_ERR_SHMEM_SEGMENT || status == UCS_OK) && words.Contain("Permission denied");
  if (status != UCS_OK || forbidden) {
    const absl::Status failure =
        UcxError(absl::StatusCode::kUnavailable,
                 absl::StrCat(forbidden ? "connecting by shared memory, which needs both workers "
                                          "to run as the same user; otherwise give both "
                                          "--kv-transports=tcp"
                                        : "connecting",
                              words.Take()),
                 forbidden ? UCS_ERR_SHMEM_SEGMENT : status);
    if (status != UCS_OK) {
      connection->closed_ = true;
      return failure;
    }
    connection->Fail(failure);
  }
  return connection;
}

UcxConnection::~UcxConnection() {
  BATON_CHECK(gone() && posted_.empty()) << posted_.size();
  for (auto& [bytes, key] : keys_) ucp_rkey_destroy(key.rkey);
}

void UcxConnection::OnEndpointError(void* arg, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxConnection*>(arg)->Fail(
      UcxError(absl::StatusCode::kUnavailable, "the peer is gone", status));
}

void UcxConnection::Fail(const absl::Status& why) {
  if (failure_.ok()) failure_ = why;
}

void UcxConnection::OnNoteSent(void* request, ucs_status_t status, void* arg) {
  const std::unique_ptr<Note> note(static_cast<Note*>(arg));
  --note->connection->notes_under_way_;
  if (status == UCS_OK) note->connection->used_ = true;
  ucp_request_free(request);
}

absl::Status UcxConnection::SendNote(absl::string_view bytes) {
  RETURN_IF_ERROR(failure_);
  if (notes_under_way_ >= Transport::kMaxNotesUnderWay) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Transport::kMaxNotesUnderWay, " notes wait for this peer"));
  }
  auto note = std::make_unique<Note>(Note{this, std::string(bytes)});
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = OnNoteSent;
  param.user_data = note.get();
  void* request = ucp_am_send_nbx(endpoint_, UcxWorker::kNoteId, nullptr, 0, note->bytes.data(),
                                  note->bytes.size(), &param);
  if (request == nullptr) {
    used_ = true;
    return absl::OkStatus();
  }
  if (UCS_PTR_IS_ERR(request)) {
    Fail(UcxError(absl::StatusCode::kUnavailable, "sending a note", UCS_PTR_STATUS(request)));
    return failure_;
  }
  ++notes_under_way_;
  (void)note.release();  // OnNoteSent deletes the note.
  return absl::OkStatus();
}

absl::StatusOr<const UcxConnection::Key*> UcxConnection::Unpack(absl::string_view key) {
  const auto known = keys_.find(key);
  if (known != keys_.end()) return &known->second;
  ByteUnpacker in(key);
  Key unpacked;
  unpacked.base = in.Get<uint64_t>();
  unpacked.bytes = in.Get<uint64_t>();
  const std::string packed(in.GetString());
  if (!in.at_end() || packed.empty()) return absl::InvalidArgumentError("not a key of memory");
  const ucs_status_t status = ucp_ep_rkey_unpack(endpoint_, packed.data(), &unpacked.rkey);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "unpacking a key", status);
  }
  return &keys_.emplace(std::string(key), unpacked).first->second;
}

void UcxConnection::Read(ReadOperation operation) {
  absl::Status status = failure_;
  const Key* key = nullptr;
  if (status.ok()) {
    const auto unpacked = Unpack(operation.key);
    status = unpacked.status();
    if (unpacked.ok()) key = *unpacked;
  }
  // UCX does not check the range. It would send any address to the peer, and the peer would access
  // it.
  if (status.ok() &&
      (operation.offset > key->bytes || operation.bytes > key->bytes - operation.offset)) {
    status = absl::InvalidArgumentError(absl::StrCat("a read of ", operation.bytes, " bytes at ",
                                                     operation.offset, " of ", key->bytes));
  }
  operation.key = {};
  if (!status.ok() || operation.bytes == 0) {
    ended_->Add(std::move(operation), std::move(status));
    return;
  }
  auto read = std::make_unique<Posted>();
  read->operation = std::move(operation);
  read->connection = this;
  read->key = key;
  queue_.push_back(std::move(read));
}

void UcxConnection::Report(std::unique_ptr<Posted> read) {
  ended_->Add(std::move(read->operation), std::move(read->error));
}

void UcxConnection::PieceDone(std::unique_ptr<Piece> piece, ucs_status_t status) {
  Posted* read = piece->read;
  --read->pieces;
  --pieces_under_way_;
  bytes_under_way_ -= piece->bytes;
  if (status == UCS_OK) {
    used_ = true;
  } else if (read->error.ok()) {
    read->error = UcxError(status == UCS_ERR_UNSUPPORTED ? absl::StatusCode::kUnimplemented
                                                         : absl::StatusCode::kUnavailable,
                           "reading", status);
  }
  const auto it = posted_.find(read);
  if (it == posted_.end() || read->pieces > 0) return;
  std::unique_ptr<Posted> owned = std::move(it->second);
  posted_.erase(it);
  Report(std::move(owned));
}

void UcxConnection::OnPiece(void* request, ucs_status_t status, void* arg) {
  std::unique_ptr<Piece> piece(static_cast<Piece*>(arg));
  UcxConnection* self = piece->read->connection;
  self->PieceDone(std::move(piece), status);
  ucp_request_free(request);
}

void UcxConnection::OnProbe(void* request, ucs_status_t status, void* arg) {
  static_cast<UcxConnection*>(arg)->ProbeDone(status);
  ucp_request_free(request);
}

void UcxConnection::ProbeDone(ucs_status_t status) {
  wiring_ = Wiring::kDone;
  if (status == UCS_OK) {
    used_ = true;
  } else if (status != UCS_ERR_UNSUPPORTED) {  // The read itself reports UNSUPPORTED.
    Fail(UcxError(absl::StatusCode::kUnavailable, "reading", status));
  }
}

void UcxConnection::Probe(const Key* key) {
  wiring_ = Wiring::kUnderWay;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnProbe;
  param.user_data = this;
  void* request = ucp_get_nbx(endpoint_, &probe_, 1, key->base, key->rkey, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    ProbeDone(request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
  }
}

bool UcxConnection::Post(size_t* budget) {
  bool moved = false;
  if (wiring_ != Wiring::kDone) {
    if (queue_.empty() || !failure_.ok()) return false;
    if (wiring_ == Wiring::kNot) Probe(queue_.front()->key);
    if (wiring_ == Wiring::kUnderWay) return false;
  }
  const bool shm = link_ == "shm";
  while (!queue_.empty() && *budget > 0 && failure_.ok() &&
         bytes_under_way_ < (shm ? kWindowShm : kWindowTcp) &&
         pieces_under_way_ < (shm ? kOperationsShm : kOperationsTcp)) {
    Posted* read = queue_.front().get();
    const size_t bytes = std::min(kPieceBytes, read->operation.bytes - read->posted);
    auto piece = std::make_unique<Piece>(Piece{read, bytes});
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = worker_->TypeOf(read->operation.local);
    param.cb.send = OnPiece;
    param.user_data = piece.get();
    void* request = ucp_get_nbx(endpoint_, read->operation.local + read->posted, bytes,
                                read->key->base + read->operation.offset + read->posted,
                                read->key->rkey, &param);
    moved = true;
    *budget -= std::min(*budget, bytes);
    read->posted += bytes;
    ++read->pieces;
    ++pieces_under_way_;
    bytes_under_way_ += bytes;
    const bool last = read->posted == read->operation.bytes || UCS_PTR_IS_ERR(request);
    if (last) {
      posted_.emplace(read, std::move(queue_.front()));
      queue_.pop_front();
    }
    if (request == nullptr || UCS_PTR_IS_ERR(request)) {
      PieceDone(std::move(piece), request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
    } else {
      (void)piece.release();  // OnPiece deletes the piece.
    }
  }
  return moved;
}

bool UcxConnection::ready() const {
  return !queue_.empty() && wiring_ != Wiring::kUnderWay && pieces_under_way_ == 0;
}

bool UcxConnection::in_flight() const {
  return wiring_ == Wiring::kUnderWay || pieces_under_way_ > 0 || notes_under_way_ > 0 ||
         closing_ != nullptr;
}

bool UcxConnection::lingers() const {
  return failure_.ok() && (wiring_ == Wiring::kUnderWay || notes_under_way_ > 0) &&
         pieces_under_way_ == 0;
}

bool UcxConnection::gone() const {
  return closed_ && pieces_under_way_ == 0 && notes_under_way_ == 0 && wiring_ != Wiring::kUnderWay;
}

void UcxConnection::EndReads(const absl::Status& why) {
  while (!queue_.empty()) {
    std::unique_ptr<Posted> read = std::move(queue_.front());
    queue_.pop_front();
    if (read->error.ok()) read->error = why;
    if (read->pieces == 0) {
      Report(std::move(read));
    } else {
      posted_.emplace(read.get(), std::move(read));
    }
  }
}

void UcxConnection::Close() {
  StartClose();
  FinishClose();
}

void UcxConnection::StartClose() {
  if (closed_ || closing_ != nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(endpoint_, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    if (request != nullptr) {
      Log(Severity::kWarning, "ucx_endpoint_close",
          {{"says", ucs_status_string(UCS_PTR_STATUS(request))}});
    }
    closed_ = true;
  } else {
    closing_ = request;
  }
}

void UcxConnection::FinishClose() {
  if (closing_ == nullptr || ucp_request_check_status(closing_) == UCS_INPROGRESS) return;
  ucp_request_free(closing_);
  closing_ = nullptr;
  closed_ = true;
}

absl::StatusOr<std::string> UcxConnection::Link() {
  RETURN_IF_ERROR(failure_);
  if (!used_) return absl::UnavailableError("nothing has gone to this peer yet");
  bool mapped = true;
  for (const auto& [bytes, key] : keys_) {
    void* local = nullptr;
    mapped &= ucp_rkey_ptr(key.rkey, key.base, &local) == UCS_OK;
  }
  link_ = UcxLinkOf(endpoint_, mapped);
  return link_;
}

}  // namespace baton
