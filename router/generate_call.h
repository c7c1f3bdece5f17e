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
#include "common/rpc/one_request_call.h"
#include "router/core/core_events.h"

namespace baton {

// One Generate RPC. Sends the core's events to the client one after the other. Any thread may call
// the public functions. The object owns itself until gRPC is done with the RPC; other holders of a
// pointer may keep it longer.
class GenerateCall final : public OneRequestCall {
 public:
  // `tell` must accept calls from any thread. On threads of gRPC, the object calls `begin` with the
  // request if it comes, `no_request` with the reason if not, and at the end `done`, once. After
  // that it makes no more calls.
  struct Callbacks {
    std::function<void(CoreEvent)> tell;
    std::function<void(const grpc::ByteBuffer& request)> begin;
    std::function<void(const absl::Status& status)> no_request;
    std::function<void()> done;
  };
  static std::shared_ptr<GenerateCall> Create(OneRequestService* service, RequestKey key,
                                              grpc::CallbackServerContext* context,
                                              Callbacks callbacks);

  // Queues an event for the client. Does nothing once the RPC has ended or the client is gone.
  void Send(const v1::GenerateEvent& event);
  // Ends the RPC. With status OK, all queued events are sent first. With another status, events
  // that gRPC has not got yet are dropped. A second call does nothing.
  void End(const absl::Status& status);
  // True if the client has cancelled the RPC, or its connection has ended.
  bool cancelled();
  // Must be called after the core got the request. If the client had cancelled it before, the core
  // is told now.
  void Submitted();
  // Cuts the RPC, because the client does not read even its final status.
  void Abort();

 private:
  GenerateCall(OneRequestService* service, RequestKey key, grpc::CallbackServerContext* context,
               Callbacks callbacks);
  void OnRequest(const grpc::ByteBuffer& request) override;
  void EndWithoutRequest(const absl::Status& status) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  const RequestKey key_;
  const Callbacks callbacks_;
  std::shared_ptr<GenerateCall> self_;
  Mutex mutex_;
  // Null once gRPC has ended the RPC.
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);  // The front event is being written.
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
