#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/connections.h"
#include "router/core/core_events.h"

namespace baton {

class AttachCall;

// The gRPC service to which workers attach. gRPC's threads check the token and the form of
// messages. The router then calls the address that the worker registered, and asks which process
// answers there (WorkerIdentity). If the worker itself answers, its registration is passed to the
// core, which judges the content. A worker of another protocol version may not have WorkerIdentity:
// its registration is passed on in any case, and the core refuses it.
class MembershipService final
    : public v1::Membership::WithRawCallbackMethod_Attach<v1::Membership::Service> {
 public:
  // `tell` is called on any thread, and must not block. At most one report of each stream is on its
  // way to the core. A worker that does not answer at its address within `connect_limit` is
  // refused. A registration must come within `request_limit` after its stream began. Streams count
  // as RPCs of their connection, which has at most kStreams: a worker has one, and a message that
  // is being read takes memory. A stream whose message is not valid ends with InvalidArgument.
  // `connections` outlives the service.
  static constexpr int kStreams = 4;
  // Longest address that a worker may register. A DNS name has at most 253 characters.
  static constexpr size_t kMaxAddressBytes = 300;
  // Max number of different refusals of which warnings are logged in a minute.
  static constexpr size_t kMaxWarnings = 200;
  MembershipService(std::string token, absl::Duration connect_limit, absl::Duration request_limit,
                    Connections* connections, std::function<void(CoreEvent)> tell);
  // All streams must have ended: the server that offers this service is shut down first.
  ~MembershipService() override;

  // The next three functions do nothing if the stream is over. Loop thread.
  void Taken(AttachKey attach);  // The core has taken a report, so the next may be read.
  void Send(AttachKey attach, const v1::Peers& peers);
  void Close(AttachKey attach, const absl::Status& status);
  // Ends streams whose registrations have not come in time. Call it again and again. Any thread.
  void EndWithoutRegistrations(absl::Time now);
  // Closes all streams with `status`, and from now on every new stream. Any thread.
  void CloseAll(const absl::Status& status);

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override;
  std::shared_ptr<AttachCall> Find(AttachKey attach);
  // Logs the warning `attach_refused`, but at most once a minute for each host and reason, because
  // a refused worker tries again and again. Counts the refusals that are too many to remember. Any
  // thread.
  void WarnRefused(const std::string& peer, const absl::Status& why);

  const std::string token_;
  const absl::Duration connect_limit_, request_limit_;
  Connections* const connections_;
  const std::function<void(CoreEvent)> tell_;
  std::atomic<AttachKey> next_key_ = 1;
  Mutex mutex_;
  std::map<AttachKey, std::shared_ptr<AttachCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int> calls_of_ ABSL_GUARDED_BY(mutex_);  // Streams of each connection.
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  // Time until which a warning is not repeated, by host and reason.
  std::map<std::string, absl::Time> warned_ ABSL_GUARDED_BY(mutex_);
  uint64_t not_logged_ ABSL_GUARDED_BY(mutex_) = 0;  // Refusals, since the last warning.
};

}  // namespace baton
