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

// The gRPC service to which workers attach. Token and form are checked on gRPC's threads. The
// router then connects to the address that the worker registered, and tells the core of the worker
// once the connection stands; what a registration means is the core's to judge.
class MembershipService final
    : public v1::Membership::WithCallbackMethod_Attach<v1::Membership::Service> {
 public:
  // `tell` takes events from any thread and does not wait. `wake` is called by any thread, and
  // makes the loop call CheckConnections. Each stream has at most one report on its way. A worker
  // to which the router can't connect within `connect_limit` is refused.
  MembershipService(std::string token, absl::Duration connect_limit,
                    std::function<void(CoreEvent)> tell, std::function<void()> wake);
  ~MembershipService() override;

  // Loop thread. Looks at the connections to workers that have registered and that the core has not
  // been told of. True while some are still being made: then this function has to be called again
  // soon.
  bool CheckConnections(absl::Time now);
  // Loop thread. These do nothing when the stream is over.
  void Taken(AttachKey attach);  // the core has taken a report: the next may be read
  void Send(AttachKey attach, const v1::Peers& peers);
  void Close(AttachKey attach, const absl::Status& status);
  // Any thread: closes all, and each that still comes.
  void CloseAll(const absl::Status& status);

 private:
  grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand>* Attach(
      grpc::CallbackServerContext* context) override;
  std::shared_ptr<AttachCall> Find(AttachKey attach);
  // Writes the warning `attach_refused`, each once a minute: a worker tries again and again.
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
  std::atomic<bool> any_connecting_ = false;  // connecting_ is not empty
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> warned_ ABSL_GUARDED_BY(mutex_);  // until when, by the words
};

}  // namespace baton
