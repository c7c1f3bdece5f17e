#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/rpc/one_request_call.h"

namespace baton {

// The service grpc.health.v1.Health
// (https://github.com/grpc/grpc/blob/master/doc/health-checking.md). gRPC has one too. But RPCs to
// that one do not count for their connection until their request has come, so one client could
// begin any number of them. Any thread.
class HealthService final : public OneRequestService {
 public:
  // A request must come within `limit`, and have at most 4 KiB: longer ones, and those that do not
  // parse, end with InvalidArgument. `connections` outlives the service.
  HealthService(Connections* connections, absl::Duration limit);

  // Sets the status of a service, given by its full name; "" stands for the whole server. Before
  // that, a service is unknown, except "", which is serving.
  void Set(absl::string_view service, bool serving);
  // Sets the status of all services to NOT_SERVING for good, tells those who watch, and ends their
  // RPCs with Unavailable.
  void End();

 private:
  class Check;
  class Watch;

  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // True: serving.
  std::map<std::string, bool, std::less<>> services_ ABSL_GUARDED_BY(mutex_) = {{"", true}};
  std::set<Watch*> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
