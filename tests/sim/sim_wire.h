#pragma once

#include "baton/v1/decode_worker.pb.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/prefill_worker.pb.h"
#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

// Jobs and updates of the worker cores as the router's messages, and back: what the workers' gRPC
// services do. The end of a job is no message.
PrefillJob JobFrom(const v1::PrefillRequest& request, absl::Time arrival);
DecodeJob JobFrom(const v1::DecodeRequest& request);
v1::PrefillEvent EventFrom(const PrefillUpdate& update);
v1::DecodeEvent EventFrom(const DecodeUpdate& update);
v1::LoadReport ReportFrom(const WorkerLoad& load);

}  // namespace baton
