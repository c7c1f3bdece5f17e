#include "tests/sim/sim_wire.h"

#include "common/base/check.h"

namespace baton {
namespace {

template <typename Request>
SamplingOptions SamplingFrom(const Request& request) {
  SamplingOptions sampling = SamplingFromProto(request.sampling(), SamplingOptions()).value();
  sampling.answer_index = request.answer_index();
  return sampling;
}

CacheUse CacheUseFrom(const v1::CacheOptions& options) {
  return options.use() == v1::CACHE_USE_OFF       ? CacheUse::kOff
         : options.use() == v1::CACHE_USE_REFRESH ? CacheUse::kRefresh
         : options.use() == v1::CACHE_USE_FORGET  ? CacheUse::kForget
                                                  : CacheUse::kOn;
}

void Set(const SampledToken& token, v1::Token* proto) {
  proto->set_token_id(token.id);
  proto->set_position(static_cast<uint32_t>(token.position));
  if (token.logprob) proto->set_logprob(*token.logprob);
  for (const TokenLogprob& top : token.top) {
    v1::TopLogprob* alternative = proto->add_top();
    alternative->set_token_id(top.id);
    alternative->set_logprob(top.logprob);
  }
}

v1::FinishReason ReasonFrom(FinishReason reason) {
  return reason == FinishReason::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

}  // namespace

PrefillJob JobFrom(const v1::PrefillRequest& request, absl::Time arrival) {
  PrefillJob job;
  job.request_id = request.request_id();
  job.attempt = request.attempt();
  job.caller = request.caller();
  job.tokens.assign(request.token_ids().begin(), request.token_ids().end());
  job.original_prompt_tokens = static_cast<int>(request.original_prompt_tokens());
  job.sampling = SamplingFrom(request);
  job.cache_salt = request.cache().salt();
  job.cache = CacheUseFrom(request.cache());
  job.arrival = arrival;
  if (request.has_first_token_due_us()) {
    job.due = arrival + absl::Microseconds(request.first_token_due_us());
  }
  return job;
}

DecodeJob JobFrom(const v1::DecodeRequest& request) {
  DecodeJob job;
  job.request_id = request.request_id();
  job.attempt = request.attempt();
  job.caller = request.caller();
  if (request.has_ticket()) {
    const v1::KvTicket& proto = request.ticket();
    KvTicket& ticket = job.ticket.emplace();
    ticket.handover_id = proto.handover_id();
    ticket.secret = proto.secret();
    ticket.owner_epoch = proto.owner_epoch();
    ticket.owner = proto.owner();
    ticket.layout_fingerprint = proto.layout_fingerprint();
    ticket.numerics_id = proto.numerics_id();
    ticket.tokens = static_cast<int>(proto.tokens());
    ticket.blocks.assign(proto.block_ids().begin(), proto.block_ids().end());
    ticket.generations.assign(proto.generations().begin(), proto.generations().end());
  }
  job.tokens.assign(request.token_ids().begin(), request.token_ids().end());
  job.original_prompt_tokens = static_cast<int>(request.original_prompt_tokens());
  job.sampling = SamplingFrom(request);
  job.cache_salt = request.cache().salt();
  job.cache = CacheUseFrom(request.cache());
  return job;
}

v1::PrefillEvent EventFrom(const PrefillUpdate& update) {
  v1::PrefillEvent event;
  if (const auto* begun = std::get_if<PrefillBegun>(&update)) {
    const KvTicket* ticket = &begun->ticket;
    event.set_cached_tokens(static_cast<uint32_t>(begun->cached_tokens));
    v1::KvTicket* proto = event.mutable_ticket();
    proto->set_handover_id(ticket->handover_id);
    proto->set_secret(ticket->secret);
    proto->set_owner_epoch(ticket->owner_epoch);
    proto->set_owner(ticket->owner);
    proto->set_layout_fingerprint(ticket->layout_fingerprint);
    proto->set_numerics_id(ticket->numerics_id);
    proto->set_tokens(static_cast<uint32_t>(ticket->tokens));
    proto->mutable_block_ids()->Add(ticket->blocks.begin(), ticket->blocks.end());
    proto->mutable_generations()->Add(ticket->generations.begin(), ticket->generations.end());
    return event;
  }
  if (const auto* prompt = std::get_if<PrefillPromptTokens>(&update)) {
    for (const SampledToken& token : prompt->tokens) {
      Set(token, event.mutable_prompt_tokens()->add_tokens());
    }
    return event;
  }
  const auto* first = std::get_if<PrefillFirstToken>(&update);
  BATON_CHECK(first != nullptr) << "the end is no event";
  v1::FirstToken* proto = event.mutable_first_token();
  Set(first->token, proto->mutable_token());
  if (first->finish) proto->set_finish_reason(ReasonFrom(*first->finish));
  proto->set_queue_us(static_cast<uint64_t>(absl::ToInt64Microseconds(first->queue)));
  proto->set_prefill_us(static_cast<uint64_t>(absl::ToInt64Microseconds(first->prefill)));
  return event;
}

v1::DecodeEvent EventFrom(const DecodeUpdate& update) {
  const auto microseconds = [](absl::Duration d) {
    return static_cast<uint64_t>(absl::ToInt64Microseconds(d));
  };
  v1::DecodeEvent event;
  if (const auto* reserved = std::get_if<DecodeReserved>(&update)) {
    event.mutable_reserved()->set_cached_tokens(static_cast<uint32_t>(reserved->cached_tokens));
    return event;
  }
  if (const auto* prompt = std::get_if<DecodePromptTokens>(&update)) {
    for (const SampledToken& token : prompt->tokens) {
      Set(token, event.mutable_prompt_tokens()->add_tokens());
    }
    return event;
  }
  if (const auto* tokens = std::get_if<DecodeTokens>(&update)) {
    for (const SampledToken& token : tokens->tokens) {
      Set(token, event.mutable_tokens()->add_tokens());
    }
    return event;
  }
  if (std::holds_alternative<DecodeOutgrown>(update)) {
    event.mutable_outgrown();
    return event;
  }
  const auto* finished = std::get_if<DecodeFinished>(&update);
  BATON_CHECK(finished != nullptr) << "the end is no event";
  v1::DecodeFinished* proto = event.mutable_finished();
  proto->set_reason(ReasonFrom(finished->reason));
  if (finished->stop_token) proto->set_stop_token_id(*finished->stop_token);
  proto->set_handover_hidden_us(microseconds(finished->handover_hidden));
  proto->set_handover_exposed_us(microseconds(finished->handover_exposed));
  proto->set_decode_wait_us(microseconds(finished->decode_wait));
  proto->set_decode_us(microseconds(finished->decode));
  proto->set_link(finished->link);
  return event;
}

v1::LoadReport ReportFrom(const WorkerLoad& load) {
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

}  // namespace baton
