#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/connections.h"

namespace baton {

class OneRequestService;

// Returns the RPC's deadline, converted to the clock of SteadyNow().
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

// Returns true if an RPC that began at `began` and that its client cancels at `now` is one whose
// deadline passes. A client tells its deadline as the time that is left, and gRPC rounds that up by
// as much as 1 %. So by the server's clock, the client may cancel that much before the deadline.
bool IsAtDeadline(absl::Time began, absl::Time deadline, absl::Time now);

// An RPC to which the client sends one request, as raw bytes. For gRPC it is one with two streams,
// which looks the same on the wire. So the object exists as soon as the client has begun the RPC:
// the RPC counts for its connection, and it ends if its request does not come. gRPC's own reactors
// for such RPCs exist only once the request is there.
class OneRequestCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  OneRequestCall(OneRequestService* service, grpc::CallbackServerContext* context);

  // Client of the RPC, as gRPC writes its address, and the RPC's deadline by SteadyNow(). Any
  // thread.
  const std::string& peer() const { return peer_; }
  absl::Time deadline() const { return deadline_; }

 protected:
  // Called at most once, on a thread of gRPC, when the request has come.
  virtual void OnRequest(const grpc::ByteBuffer& request) = 0;
  // Ends the RPC because its request does not come. Called at most once, and instead of OnRequest.
  // Must not call the service.
  virtual void EndWithoutRequest(const absl::Status& status) = 0;
  // Tells that the RPC stays open for as long as its client likes. Called at most once, in
  // OnRequest.
  void StaysOpen();
  // Overrides call these too. OnDone is called after the other functions.
  void OnCancel() override;
  void OnDone() override;

 private:
  friend class OneRequestService;
  // Called once, when the whole object is made, because another thread may then call its virtual
  // functions. gRPC begins nothing, and calls nothing, before it has got the object.
  void Begin();
  void OnReadDone(bool ok) final;
  // Returns the status of an RPC whose client has left before its request came.
  absl::Status WhyGone() const;
  // Returns the status of an RPC of which the read has failed.
  absl::Status WhyNotRead() const;

  OneRequestService* const service_;
  grpc::CallbackServerContext* const context_;
  const std::string peer_;
  const uint64_t connection_;  // see Connections::RpcBegins
  const absl::Time began_, deadline_;
  Connections::Awaited awaited_;
  uint64_t key_ = 0;
  std::atomic<bool> came_ = false;  // The request came.
  bool read_ended_ = false;         // The request came, or the read of it has failed.
  bool stays_open_ = false;         // StaysOpen() was called.
  grpc::ByteBuffer request_;
};

// A gRPC service whose methods are OneRequestCalls.
class OneRequestService : public grpc::Service {
 public:
  // A request must come within `limit` after its RPC began. At most `reads` requests are read from
  // one connection at the same time, so that it can't fill the memory with parts of large requests.
  // If these do not go on for about a second, other requests are read too. `connections` outlives
  // the service.
  OneRequestService(Connections* connections, absl::Duration limit, size_t reads = 4)
      : connections_(connections), limit_(limit), reads_at_once_(reads) {}

  // Ends RPCs whose requests have not come in time, and lets others be read in place of those that
  // do not go on. Call it about once a second. Any thread.
  void EndWithoutRequests(absl::Time now);

 protected:
  // Adds a method, for example /baton.v1.Inference/Generate. `call` makes the object of an RPC on a
  // thread of gRPC; the object deletes itself when OnDone is called. Call only from a constructor.
  void AddMethod(const char* name,
                 std::function<OneRequestCall*(grpc::CallbackServerContext*)> call);

 private:
  friend class OneRequestCall;
  // An RPC whose request has not come.
  struct Waiting {
    OneRequestCall* call;
    absl::Time until;
    bool reading = false;  // The read has begun.
  };
  // The RPCs of one connection whose requests have not come.
  struct Reads {
    size_t calls = 0;
    // Calls whose requests are being read, with the time when that began. A call whose request does
    // not go on is taken out.
    std::map<uint64_t, absl::Time> places;
    std::set<uint64_t> others;  // calls whose requests are not being read
    // Bytes of unfinished messages when others waited at the last call of EndWithoutRequests, and
    // the number of calls that have begun since.
    std::optional<uint64_t> unfinished;
    uint64_t begun = 0;
  };
  // Notes that an RPC has begun. Its request is read as soon as the connection has room.
  uint64_t Begin(OneRequestCall* call);
  // Notes that the request of an RPC has come, or can't come. Returns false if the RPC no longer
  // waits for it.
  bool Came(uint64_t key);
  // Notes that the client has cancelled an RPC.
  void Cancelled(uint64_t key);
  // Ends the wait of an RPC. Another request of the connection may then be read.
  void Forget(std::map<uint64_t, Waiting>::iterator waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins to read requests as long as there are places.
  void Read(Reads* reads, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets other requests of a connection be read if those that are being read do not go on.
  void PassOver(uint64_t connection, Reads* reads, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Connections* const connections_;
  const absl::Duration limit_;
  const size_t reads_at_once_;
  int methods_ = 0;
  Mutex mutex_;
  uint64_t next_key_ ABSL_GUARDED_BY(mutex_) = 1;
  // RPCs that wait for their requests, in the order in which they began.
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // Reads of each connection.
  std::map<uint64_t, Reads> reads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
