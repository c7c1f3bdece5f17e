#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/rpc/one_request_call.h"
#include "router/door/client_call.h"
#include "router/door/door.h"

namespace baton {

// One Generate RPC. Sends the core's events to the client one after the other. Any thread may call
// the public functions. The object owns itself until gRPC is done with the RPC; other holders of a
// pointer may keep it longer.
class GenerateCall final : public OneRequestCall, public ClientCall {
 public:
  // Called on threads of gRPC: `begin` with the request if it comes, `no_request` with the reason
  // if not, and at the end `done`, once. After that the object makes no more calls, neither to the
  // door.
  struct Callbacks {
    std::function<void(const grpc::ByteBuffer& request)> begin;
    std::function<void(const absl::Status& status)> no_request;
    std::function<void()> done;
  };
  // `door` outlives the call.
  static std::shared_ptr<GenerateCall> Create(OneRequestService* service, Door* door,
                                              RequestKey key, grpc::CallbackServerContext* context,
                                              Callbacks callbacks);

  void Send(ClientEvent event) override;
  void End(const absl::Status& status) override;
  void Abort() override;
  bool cancelled() override;

 private:
  GenerateCall(OneRequestService* service, Door* door, RequestKey key,
               grpc::CallbackServerContext* context, Callbacks callbacks);
  void OnRequest(const grpc::ByteBuffer& request) override;
  void EndWithoutRequest(const absl::Status& status) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Door* const door_;
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
