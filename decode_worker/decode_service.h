#pragma once

#include <string>
#include <utility>

#include "baton/v1/decode_worker.grpc.pb.h"
#include "common/worker/worker_service.h"
#include "decode_worker/decode_worker.h"

namespace baton {

// The gRPC service of a decode worker. It checks a request, submits the job to the core, and writes
// the core's reports to the stream. RPCs run on any of gRPC's threads. A stream that is read slowly
// pauses its job; a broken or cancelled stream cancels its job.
class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  // `token` is the cluster's shared token. Unless it is empty, RPCs that do not carry it end with
  // Unauthenticated. `epoch` is this worker's epoch: RPCs that are meant for another one end with
  // Unavailable.
  DecodeService(std::string token, WorkerEpoch epoch);

  // Sets the core that gets the jobs. Any thread. Until this call, RPCs end with Unavailable.
  // `worker` is not owned and must outlive the server.
  void SetWorker(DecodeWorker* worker) { streams_.SetWorker(worker); }

 private:
  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;

  JobStreams<DecodeWorker, DecodeJob, DecodeUpdate, v1::DecodeEvent> streams_;
};

}  // namespace baton
