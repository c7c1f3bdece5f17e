#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "baton/v1/cache.pb.h"
#include "baton/v1/kv_ticket.pb.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/sampling.pb.h"
#include "baton/v1/token.pb.h"
#include "common/base/status_macros.h"
#include "common/engine/finish.h"
#include "common/engine/worker_load.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "common/worker/worker_core.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

v1::KvTicket TicketToProto(const KvTicket& ticket);
// Returns InvalidArgument for a ticket that no prefill worker could have written: a secret of the
// wrong length, different numbers of blocks and generations, or more blocks than tokens.
absl::StatusOr<KvTicket> TicketFromProto(const v1::KvTicket& proto);

v1::Token TokenToProto(const SampledToken& token);
v1::FinishReason FinishReasonToProto(FinishReason reason);
v1::LoadReport LoadToProto(const WorkerLoad& load);
inline uint64_t Microseconds(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

// Appends the tokens to a message's repeated field.
template <typename Tokens>
void AddTokens(const std::vector<SampledToken>& tokens, Tokens* proto) {
  for (const SampledToken& token : tokens) *proto->Add() = TokenToProto(token);
}

// Converts sampling parameters in which the router has filled all defaults. Returns InvalidArgument
// unless seed, temperature and max_tokens are set.
absl::StatusOr<SamplingOptions> ResolvedSampling(const v1::SamplingParams& params);

// Reads how a request uses the prefix cache. Returns InvalidArgument for an unknown value or a salt
// that is too long.
absl::Status ReadCacheOptions(const v1::CacheOptions& options, std::string* salt, CacheUse* use);

// Reads the fields that requests to both kinds of worker share into `job`. Returns InvalidArgument
// for an impossible number of original prompt tokens, and the errors of ResolvedSampling and
// ReadCacheOptions.
template <typename Request, typename Job>
absl::Status ReadJob(const Request& request, Job* job) {
  job->request_id = request.request_id();
  job->attempt = request.attempt();
  job->caller = request.caller();
  job->tokens.assign(request.token_ids().begin(), request.token_ids().end());
  const uint32_t prompt_tokens = request.original_prompt_tokens();
  if (prompt_tokens < 1 || prompt_tokens > job->tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("original_prompt_tokens is ", prompt_tokens,
                                                   " of ", job->tokens.size(), " tokens"));
  }
  job->original_prompt_tokens = static_cast<int>(prompt_tokens);
  ASSIGN_OR_RETURN(job->sampling, ResolvedSampling(request.sampling()));
  job->sampling.answer_index = request.answer_index();
  return ReadCacheOptions(request.cache(), &job->cache_salt, &job->cache);
}

}  // namespace baton
