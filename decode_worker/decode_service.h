#pragma once

#include <string>
#include <utility>

#include "baton/v1/decode_worker.grpc.pb.h"
#include "common/worker/worker_service.h"
#include "decode_worker/decode_worker.h"

namespace baton {

// The gRPC service of a decode worker: checks a request, submits the job to the core, and writes
// what the core reports. Any of gRPC's threads. A stream whose reader is slow pauses its job.
class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  explicit DecodeService(std::string token);

  // RPCs are Unavailable until then. `worker` outlives the server.
  void SetWorker(DecodeWorker* worker) { streams_.SetWorker(worker); }

 private:
  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;

  JobStreams<DecodeWorker, DecodeJob, DecodeUpdate, v1::DecodeEvent> streams_;
};

}  // namespace baton
