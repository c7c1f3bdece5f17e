#pragma once

#include <string>
#include <utility>

#include "baton/v1/prefill_worker.grpc.pb.h"
#include "common/worker/worker_service.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

// The gRPC service of a prefill worker. It checks a request, submits the job to the core, and
// writes the core's reports to the stream. RPCs run on any of gRPC's threads. A broken or cancelled
// stream cancels its job, which also ends the lease on the KV.
class PrefillService final : public v1::PrefillWorker::CallbackService {
 public:
  // `token` is the cluster's shared token. Unless it is empty, RPCs that do not carry it end with
  // Unauthenticated. `epoch` is this worker's epoch: RPCs that are meant for another one end with
  // Unavailable.
  PrefillService(std::string token, WorkerEpoch epoch);

  // Sets the core that gets the jobs. Any thread. Until this call, RPCs end with Unavailable.
  // `worker` is not owned and must outlive the server.
  void SetWorker(PrefillWorker* worker) { streams_.SetWorker(worker); }

 private:
  grpc::ServerWriteReactor<v1::PrefillEvent>* Prefill(grpc::CallbackServerContext* context,
                                                      const v1::PrefillRequest* request) override;

  JobStreams<PrefillWorker, PrefillJob, PrefillUpdate, v1::PrefillEvent> streams_;
};

}  // namespace baton
