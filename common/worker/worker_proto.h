#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/kv_ticket.pb.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/sampling.pb.h"
#include "baton/v1/token.pb.h"
#include "common/engine/finish.h"
#include "common/engine/worker_load.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

v1::KvTicket TicketToProto(const KvTicket& ticket);
// InvalidArgument for a ticket that no prefill worker wrote: a secret of another length, counts
// that differ, more blocks than tokens.
absl::StatusOr<KvTicket> TicketFromProto(const v1::KvTicket& proto);

v1::Token TokenToProto(const SampledToken& token);
v1::FinishReason FinishReasonToProto(FinishReason reason);
v1::LoadReport LoadToProto(const WorkerLoad& load);
inline uint64_t Microseconds(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

// What the router has resolved: InvalidArgument unless seed, temperature and max_tokens are set.
absl::StatusOr<SamplingOptions> ResolvedSampling(const v1::SamplingParams& params);

}  // namespace baton
