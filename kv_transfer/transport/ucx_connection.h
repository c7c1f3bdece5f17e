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

// A UCX transport's connection to one peer: the endpoint, the reads and notes that are on their way
// there, and its end. The first read goes alone, one byte of it; until that has come back the
// connection is being wired up, and all others wait. One thread; UCX tells what has arrived from
// within ucp_worker_progress.
class UcxConnection {
 public:
  // `address` as the peer's UcxWorker::address gives it. Reads that have ended go to `ended`.
  // `worker` and `ended` must outlive the connection. Unavailable with UCX's words.
  static absl::StatusOr<std::unique_ptr<UcxConnection>> Create(absl::string_view address,
                                                               UcxWorker* worker,
                                                               EndedReads* ended);
  // Gone, see below.
  ~UcxConnection();
  UcxConnection(const UcxConnection&) = delete;
  UcxConnection& operator=(const UcxConnection&) = delete;

  // As Transport has them.
  void Read(ReadOperation operation);
  absl::Status SendNote(absl::string_view note);
  absl::StatusOr<std::string> Link();

  // Hands reads to UCX as far as the connection's window and `budget` go, in bytes, which is
  // lessened by what went. True when some went.
  bool Post(size_t* budget);
  // Reads wait that Post would hand on.
  bool ready() const;
  // UCX has something in hand that it will report.
  bool in_flight() const;

  // Why nothing goes there any more; the first reason that there was.
  const absl::Status& failure() const { return failure_; }
  void Fail(const absl::Status& why);
  // Nothing more of its reads is handed to UCX; those of which it has nothing in hand end.
  void EndReads(const absl::Status& why);
  // Moves its end on, which is by force: only then does UCX report what it has in hand for a peer
  // that does not answer. Once it is gone, nothing of it is written to any more.
  void Close();
  bool gone() const;
  // It has not failed and is still being wired up, but nothing of ours is read any more.
  bool lingers() const;

 private:
  struct Key {
    uint64_t base = 0;
    uint64_t bytes = 0;
    ucp_rkey_h rkey = nullptr;
  };
  struct Posted {  // one read
    ReadOperation operation;
    UcxConnection* connection = nullptr;
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
  void* closing_ = nullptr;  // the request of a close under way
  bool closed_ = false;
  absl::Status failure_;
  bool used_ = false;  // something has arrived there
  enum class Wiring { kNot, kUnderWay, kDone } wiring_ = Wiring::kNot;
  std::byte probe_{};  // where the first byte goes
  std::string link_;
  std::map<std::string, Key, std::less<>> keys_;
  std::deque<std::unique_ptr<Posted>> queue_;          // not all handed to UCX
  std::map<Posted*, std::unique_ptr<Posted>> posted_;  // handed to UCX, not all reported
  size_t bytes_under_way_ = 0;
  int pieces_under_way_ = 0;
  int notes_under_way_ = 0;
};

}  // namespace baton
