#pragma once

#include "baton/v1/decode_worker.pb.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/prefill_worker.pb.h"
#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

// Conversions between the router's messages and the jobs and updates of the worker cores, as in the
// workers' gRPC services. EventFrom must not be called for an update that ends a job.
PrefillJob JobFrom(const v1::PrefillRequest& request, absl::Time arrival);
DecodeJob JobFrom(const v1::DecodeRequest& request);
v1::PrefillEvent EventFrom(const PrefillUpdate& update);
v1::DecodeEvent EventFrom(const DecodeUpdate& update);
v1::LoadReport ReportFrom(const WorkerLoad& load);

}  // namespace baton
