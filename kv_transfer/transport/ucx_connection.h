#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/ended_reads.h"
#include "kv_transfer/transport/transport.h"
#include "kv_transfer/transport/ucx_worker.h"

namespace baton {

// A UCX transport's connection to one peer: the endpoint, the reads and notes on their way, and the
// close. The first byte of the first read goes alone. Until it has come back the connection is
// being wired up, and all reads wait. One thread; UCX reports arrivals from within
// ucp_worker_progress.
class UcxConnection {
 public:
  // `address` is the peer's UcxWorker::address. Reads that have ended are added to `ended`.
  // `worker` and `ended` must outlive the connection. Returns Unavailable, with UCX's message, on
  // failure.
  static absl::StatusOr<std::unique_ptr<UcxConnection>> Create(absl::string_view address,
                                                               UcxWorker* worker,
                                                               EndedReads* ended);
  // Requires gone(), see below.
  ~UcxConnection();
  UcxConnection(const UcxConnection&) = delete;
  UcxConnection& operator=(const UcxConnection&) = delete;

  // As in Transport.
  void Read(ReadOperation operation);
  absl::Status SendNote(absl::string_view note);
  absl::StatusOr<std::string> Link();

  // Hands queued reads to UCX, up to the connection's window and `budget`, in bytes. Subtracts the
  // bytes handed on from `budget`. Returns true if there were any.
  bool Post(size_t* budget);
  // Returns true if reads wait that Post would hand on.
  bool ready() const;
  // Returns true if UCX still has to report an operation of this connection.
  bool in_flight() const;

  // The first error, after which nothing more is sent; OK while there is none.
  const absl::Status& failure() const { return failure_; }
  void Fail(const absl::Status& why);
  // Hands no more reads to UCX. Reads without pieces at UCX end at once.
  void EndReads(const absl::Status& why);
  // Starts or continues to close the endpoint by force: only then does UCX report the operations to
  // a peer that does not answer. Once gone() is true, UCX no longer writes to any memory of its
  // reads.
  void Close();
  bool gone() const;
  // Returns true if the connection has not failed and is still being wired up or sending notes, but
  // no read writes to memory of the transport's user any more.
  bool lingers() const;

 private:
  struct Key {
    uint64_t base = 0;
    uint64_t bytes = 0;
    ucp_rkey_h rkey = nullptr;
  };
  struct Posted {  // state of one read
    ReadOperation operation;
    UcxConnection* connection = nullptr;
    const Key* key = nullptr;
    size_t posted = 0;  // bytes handed to UCX
    int pieces = 0;     // pieces handed to UCX and not yet reported
    absl::Status error;
  };
  struct Piece {
    Posted* read;
    size_t bytes;
  };
  struct Note {
    UcxConnection* connection;
    std::string bytes;
  };

  UcxConnection(UcxWorker* worker, EndedReads* ended) : worker_(worker), ended_(ended) {}
  static void OnPiece(void* request, ucs_status_t status, void* piece);
  static void OnNoteSent(void* request, ucs_status_t status, void* note);
  static void OnProbe(void* request, ucs_status_t status, void* connection);
  static void OnEndpointError(void* connection, ucp_ep_h endpoint, ucs_status_t status);

  absl::StatusOr<const Key*> Unpack(absl::string_view key);
  void PieceDone(std::unique_ptr<Piece> piece, ucs_status_t status);
  void Report(std::unique_ptr<Posted> read);
  void Probe(const Key* key);
  void ProbeDone(ucs_status_t status);
  void StartClose();
  void FinishClose();

  UcxWorker* const worker_;
  EndedReads* const ended_;
  ucp_ep_h endpoint_ = nullptr;
  void* closing_ = nullptr;  // the request of a close under way, or null
  bool closed_ = false;
  absl::Status failure_;
  bool used_ = false;  // True once an operation has completed.
  enum class Wiring { kNot, kUnderWay, kDone } wiring_ = Wiring::kNot;
  std::byte probe_{};  // destination of the first byte
  std::string link_;
  std::map<std::string, Key, std::less<>> keys_;
  std::deque<std::unique_ptr<Posted>> queue_;  // reads not fully handed to UCX
  // Reads fully handed to UCX, not fully reported.
  std::map<Posted*, std::unique_ptr<Posted>> posted_;
  size_t bytes_under_way_ = 0;
  int pieces_under_way_ = 0;
  int notes_under_way_ = 0;
};

}  // namespace baton
