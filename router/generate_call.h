#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "common/base/mutex.h"
#include "router/core/core_events.h"

namespace baton {

// One Generate RPC: what the core sends goes out one event after the other. gRPC's threads call
// back; the loop thread calls the rest. Owned by itself until gRPC is done, and by whoever still
// holds a pointer.
class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `tell` takes events from any thread. `done` is called once, last, when the RPC is over.
  static std::shared_ptr<GenerateCall> Create(RequestKey key, grpc::CallbackServerContext* context,
                                              std::function<void(CoreEvent)> tell,
                                              std::function<void()> done);

  void Send(const v1::GenerateEvent& event);
  // With OK after all that was sent; otherwise what has not been handed to gRPC is dropped.
  void End(const absl::Status& status);
  // Cuts the RPC: the client takes not even its status.
  void Abort();

 private:
  GenerateCall(RequestKey key, grpc::CallbackServerContext* context,
               std::function<void(CoreEvent)> tell, std::function<void()> done);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  const RequestKey key_;
  const std::function<void(CoreEvent)> tell_;
  const std::function<void()> done_;
  std::shared_ptr<GenerateCall> self_;
  Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null once gRPC is done
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);    // the first is being written
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
