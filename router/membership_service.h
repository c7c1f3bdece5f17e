#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "baton/v1/membership.grpc.pb.h"
#include "common/base/mutex.h"
#include "router/core_events.h"

namespace baton {

class AttachCall;

// What workers attach to. Token and form are checked on gRPC's threads; what a registration means
// is the core's to judge.
class MembershipService final
    : public v1::Membership::WithCallbackMethod_Attach<v1::Membership::Service> {
 public:
  // `tell` takes events from any thread. Of one stream, at most one report is on its way.
  MembershipService(std::string token, std::function<void(CoreEvent)> tell);
  ~MembershipService() override;

  // Loop thread. All do nothing when the stream is over.
  void Taken(AttachKey attach);  // the core has taken a report: the next may be read
  void Send(AttachKey attach, const v1::Peers& peers);
  void Close(AttachKey attach, const absl::Status& status);
  // Any thread: closes all, and each that still comes.
  void CloseAll(const absl::Status& status);

 private:
  grpc::ServerBidiReactor<v1::WorkerReport, v1::RouterCommand>* Attach(
      grpc::CallbackServerContext* context) override;
  std::shared_ptr<AttachCall> Find(AttachKey attach);

  const std::string token_;
  const std::function<void(CoreEvent)> tell_;
  std::atomic<AttachKey> next_key_ = 1;
  Mutex mutex_;
  std::map<AttachKey, std::shared_ptr<AttachCall>> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
