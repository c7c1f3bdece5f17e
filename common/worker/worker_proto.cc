#include "common/worker/worker_proto.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

constexpr size_t kTicketSecretBytes = 16;

}  // namespace

v1::KvTicket TicketToProto(const KvTicket& ticket) {
  v1::KvTicket proto;
  proto.set_handover_id(ticket.handover_id);
  proto.set_secret(ticket.secret);
  proto.set_owner_epoch(ticket.owner_epoch);
  proto.set_owner(ticket.owner);
  proto.set_layout_fingerprint(ticket.layout_fingerprint);
  proto.set_numerics_id(ticket.numerics_id);
  proto.set_tokens(static_cast<uint32_t>(ticket.tokens));
  proto.mutable_block_ids()->Add(ticket.blocks.begin(), ticket.blocks.end());
  proto.mutable_generations()->Add(ticket.generations.begin(), ticket.generations.end());
  return proto;
}

absl::StatusOr<KvTicket> TicketFromProto(const v1::KvTicket& proto) {
  if (proto.secret().size() != kTicketSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket secret has ", proto.secret().size(), " bytes, not 16"));
  }
  if (proto.block_ids_size() == 0 || proto.block_ids_size() != proto.generations_size() ||
      proto.tokens() < static_cast<uint32_t>(proto.block_ids_size()) ||
      proto.tokens() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("ticket names ", proto.block_ids_size(),
                                                   " blocks, ", proto.generations_size(),
                                                   " generations, ", proto.tokens(), " tokens"));
  }
  KvTicket ticket;
  ticket.handover_id = proto.handover_id();
  ticket.secret = proto.secret();
  ticket.owner_epoch = proto.owner_epoch();
  ticket.owner = proto.owner();
  ticket.layout_fingerprint = proto.layout_fingerprint();
  ticket.numerics_id = proto.numerics_id();
  ticket.tokens = static_cast<int>(proto.tokens());
  for (const uint32_t block : proto.block_ids()) {
    if (block > INT32_MAX)
      return absl::InvalidArgumentError(absl::StrCat("ticket names block ", block));
    ticket.blocks.push_back(static_cast<BlockId>(block));
  }
  ticket.generations.assign(proto.generations().begin(), proto.generations().end());
  return ticket;
}

v1::Token TokenToProto(const SampledToken& token) {
  v1::Token proto;
  proto.set_token_id(token.id);
  proto.set_position(static_cast<uint32_t>(token.position));
  if (token.logprob) proto.set_logprob(*token.logprob);
  for (const TokenLogprob& top : token.top) {
    v1::TopLogprob* alternative = proto.add_top();
    alternative->set_token_id(top.id);
    alternative->set_logprob(top.logprob);
  }
  return proto;
}

v1::FinishReason FinishReasonToProto(FinishReason reason) {
  return reason == FinishReason::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

v1::LoadReport LoadToProto(const WorkerLoad& load) {
  v1::LoadReport report;
  report.set_running(static_cast<uint32_t>(load.running));
  report.set_waiting(static_cast<uint32_t>(load.waiting));
  report.set_waiting_tokens(static_cast<uint64_t>(load.waiting_tokens));
  report.set_free_blocks(static_cast<uint32_t>(load.free_blocks));
  report.set_total_blocks(static_cast<uint32_t>(load.total_blocks));
  report.set_draining(load.draining);
  report.set_leases(static_cast<uint32_t>(load.leases));
  report.set_steps(load.steps);
  return report;
}

absl::Status ReadCacheOptions(const v1::CacheOptions& options, std::string* salt, CacheUse* use) {
  if (options.salt().size() > kMaxCacheSaltBytes) {
    return absl::InvalidArgumentError(absl::StrCat("cache.salt has ", options.salt().size(),
                                                   " bytes; at most ", kMaxCacheSaltBytes));
  }
  switch (options.use()) {
    case v1::CACHE_USE_UNSPECIFIED:
      *use = CacheUse::kOn;
      break;
    case v1::CACHE_USE_OFF:
      *use = CacheUse::kOff;
      break;
    case v1::CACHE_USE_REFRESH:
      *use = CacheUse::kRefresh;
      break;
    case v1::CACHE_USE_FORGET:
      *use = CacheUse::kForget;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("cache.use is ", options.use(), ", which this worker does not know"));
  }
  *salt = options.salt();
  return absl::OkStatus();
}

absl::StatusOr<SamplingOptions> ResolvedSampling(const v1::SamplingParams& params) {
  if (!params.has_seed() || !params.has_temperature() || !params.has_max_tokens()) {
    return absl::InvalidArgumentError(
        "sampling is not resolved: seed, temperature and max_tokens must be set");
  }
  return SamplingFromProto(params, SamplingOptions());
}

}  // namespace baton
