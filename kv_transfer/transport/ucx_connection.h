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
// close. The first byte of the first read is fetched alone. Until this byte has arrived, the
// connection is still being established, and all reads wait. One thread; UCX reports arrivals from
// within ucp_worker_progress.
class UcxConnection {
 public:
  // `address` is the peer's UcxWorker::address. Reads that have ended are added to `ended`.
  // `worker` and `ended` must outlive the connection. Returns Unavailable, with UCX's message, if
  // UCX makes no endpoint. If UCX makes one that can't work, returns a connection whose failure()
  // has the reason; it only has to be closed.
  static absl::StatusOr<std::unique_ptr<UcxConnection>> Create(absl::string_view address,
                                                               UcxWorker* worker,
                                                               EndedReads* ended);
  // Requires that gone() returns true.
  ~UcxConnection();
  UcxConnection(const UcxConnection&) = delete;
  UcxConnection& operator=(const UcxConnection&) = delete;

  // Read, SendNote and Link work as in Transport.
  void Read(ReadOperation operation);
  absl::Status SendNote(absl::string_view note);
  absl::StatusOr<std::string> Link();

  // Hands queued reads to UCX while the bytes under way stay within this connection's limit and
  // within `budget`. Subtracts the bytes handed to UCX from `budget`. Returns true if it handed
  // over any bytes.
  bool Post(size_t* budget);
  // Returns true if Post would hand a queued read to UCX.
  bool ready() const;
  // Returns true if UCX still has to report an operation of this connection.
  bool in_flight() const;

  // The first error, after which nothing more is sent; OK while there is none.
  const absl::Status& failure() const { return failure_; }
  void Fail(const absl::Status& why);
  // Hands no more reads to UCX, which gets each read in pieces. A read without a piece at UCX ends
  // immediately. Every other read ends when UCX has reported all its pieces.
  void EndReads(const absl::Status& why);
  // Starts or continues to close the endpoint by force. If the peer does not answer, UCX reports
  // the end of operations only after a forced close. Once gone() is true, UCX no longer writes to
  // the destination of any read.
  void Close();
  bool gone() const;
  // Returns true if the connection is kept open only to finish its setup or to send notes. No read
  // writes to memory of the transport's user any more, and the connection has not failed.
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
  std::byte probe_{};  // destination of the first byte of the first read
  std::string link_;
  std::map<std::string, Key, std::less<>> keys_;
  std::deque<std::unique_ptr<Posted>> queue_;  // reads not fully handed to UCX
  // Reads that were handed to UCX completely and that UCX has not finished yet. UCX gets a read in
  // pieces, and reports the end of each piece.
  std::map<Posted*, std::unique_ptr<Posted>> posted_;
  size_t bytes_under_way_ = 0;
  int pieces_under_way_ = 0;
  int notes_under_way_ = 0;
};

}  // namespace baton
