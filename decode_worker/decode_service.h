#pragma once

#include <atomic>
#include <string>

#include "baton/v1/decode_worker.grpc.pb.h"
#include "decode_worker/decode_worker.h"

namespace baton {

// The gRPC door of a decode worker: checks, submits to the core, and writes what it reports. Any of
// gRPC's threads. A broken or cancelled stream cancels its job; one whose reader is slow pauses it.
class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  explicit DecodeService(std::string token) : token_(std::move(token)) {}

  // RPCs are Unavailable until then. `worker` outlives the server.
  void SetWorker(DecodeWorker* worker) { worker_ = worker; }

 private:
  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;

  const std::string token_;
  std::atomic<DecodeWorker*> worker_ = nullptr;
};

}  // namespace baton
