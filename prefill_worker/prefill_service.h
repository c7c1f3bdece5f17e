#pragma once

#include <string>
#include <utility>

#include "baton/v1/prefill_worker.grpc.pb.h"
#include "common/worker/worker_service.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

// The gRPC service of a prefill worker: checks a request, submits the job to the core, and writes
// what the core reports. Any of gRPC's threads. With a job that is cancelled its lease ends.
class PrefillService final : public v1::PrefillWorker::CallbackService {
 public:
  explicit PrefillService(std::string token);

  // RPCs are Unavailable until then. `worker` outlives the server.
  void SetWorker(PrefillWorker* worker) { streams_.SetWorker(worker); }

 private:
  grpc::ServerWriteReactor<v1::PrefillEvent>* Prefill(grpc::CallbackServerContext* context,
                                                      const v1::PrefillRequest* request) override;

  JobStreams<PrefillWorker, PrefillJob, PrefillUpdate, v1::PrefillEvent> streams_;
};

}  // namespace baton
