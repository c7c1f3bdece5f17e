#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/connections.h"

namespace baton {

// The service grpc.reflection.v1alpha.ServerReflection, and v1, which is the same under another
// name (https://github.com/grpc/grpc/blob/master/doc/server-reflection.md). gRPC has a plugin for
// it. But the plugin takes a thread for each stream, and a stream counts for its connection only
// once it has its thread, so one client could begin any number of them. Any thread.
class ReflectionService final : public grpc::Service {
 public:
  // `services` are the full names of the services that it lists besides itself. Their code must be
  // linked. `connections` outlives the service.
  ReflectionService(Connections* connections, std::vector<std::string> services);

  // Ends streams on which no request has come for a minute. Call it again and again.
  void EndIdle(absl::Time now);

 private:
  // A request longer than 4 KiB, or one that does not parse, ends its stream with InvalidArgument.
  class Stream;
  // A connection has at most this number of streams. More end with ResourceExhausted.
  static constexpr int kStreams = 4;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
      grpc::CallbackServerContext* context);

  Connections* const connections_;
  const std::vector<std::string> services_;
  Mutex mutex_;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int> streams_of_ ABSL_GUARDED_BY(mutex_);  // number for each connection
};

}  // namespace baton
