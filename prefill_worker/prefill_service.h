#pragma once

#include <atomic>
#include <string>

#include "baton/v1/prefill_worker.grpc.pb.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

// The gRPC door of a prefill worker: checks, submits to the core, and writes what it reports. Any
// of gRPC's threads. A broken or cancelled stream cancels its job, and with it the lease.
class PrefillService final : public v1::PrefillWorker::CallbackService {
 public:
  explicit PrefillService(std::string token) : token_(std::move(token)) {}

  // RPCs are Unavailable until then. `worker` outlives the server.
  void SetWorker(PrefillWorker* worker) { worker_ = worker; }

 private:
  grpc::ServerWriteReactor<v1::PrefillEvent>* Prefill(grpc::CallbackServerContext* context,
                                                      const v1::PrefillRequest* request) override;

  const std::string token_;
  std::atomic<PrefillWorker*> worker_ = nullptr;
};

}  // namespace baton
