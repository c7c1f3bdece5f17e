#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/mutex.h"
#include "router/core/core_events.h"

namespace baton {

class AttachCall;

// The gRPC service to which workers attach. gRPC's threads check the token and the form of
// messages. The router then connects to the address that the worker registered, and passes the
// registration to the core once it is connected. The core judges the content of the registration.
class MembershipService final
    : public v1::Membership::WithCallbackMethod_Attach<v1::Membership::Service> {
 public:
  // `tell` is called on any thread, and must not block. `wake` is called on any thread, and must
  // make the loop call CheckConnections. At most one report of each stream is on its way to the
  // core. A worker to which the router can't connect within `connect_limit` is refused.
  MembershipService(std::string token, absl::Duration connect_limit,
                    std::function<void(CoreEvent)> tell, std::function<void()> wake);
  ~MembershipService() override;

  // Checks the connections to workers that have registered but were not passed to the core yet.
  // Returns true while some are still connecting: the caller must then call this function again
  // soon. Loop thread.
  bool CheckConnections(absl::Time now);
  // The next three functions do nothing if the stream is over. Loop thread.
  void Taken(AttachKey attach);  // The core has taken a report, so the next one may be read.
  void Send(AttachKey attach, const v1::Peers& peers);
  void Close(AttachKey attach, const absl::Status& status);
  // Closes all streams with `status`, and from now on every new stream. Any thread.
  void CloseAll(const absl::Status& status);

 private:
  grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand>* Attach(
      grpc::CallbackServerContext* context) override;
  std::shared_ptr<AttachCall> Find(AttachKey attach);
  // Logs the warning `attach_refused`, but at most once a minute for each host and reason, because
  // a refused worker tries again and again.
  void WarnRefused(const std::string& peer, const absl::Status& why, absl::Time now);

  const std::string token_;
  const absl::Duration connect_limit_;
  const std::function<void(CoreEvent)> tell_;
  const std::function<void()> wake_;
  std::atomic<AttachKey> next_key_ = 1;
  Mutex mutex_;
  std::map<AttachKey, std::shared_ptr<AttachCall>> calls_ ABSL_GUARDED_BY(mutex_);
  // Streams of the workers to which the router is connecting.
  std::vector<AttachKey> connecting_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> any_connecting_ = false;  // True if connecting_ is not empty.
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  // Time until which a warning is not repeated, by host and reason.
  std::map<std::string, absl::Time> warned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
