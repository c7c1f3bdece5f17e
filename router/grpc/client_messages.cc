#include "router/grpc/client_messages.h"

#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/overloaded.h"

namespace baton {
namespace {

void Set(std::vector<v1::Token>&& tokens, google::protobuf::RepeatedPtrField<v1::Token>* proto) {
  proto->Reserve(static_cast<int>(tokens.size()));
  for (v1::Token& token : tokens) *proto->Add() = std::move(token);
}

void Set(const TokenUsage& usage, v1::Usage* proto) {
  proto->set_prompt_tokens(usage.prompt_tokens);
  proto->set_cached_tokens(usage.cached_tokens);
  proto->set_completion_tokens(usage.completion_tokens);
}

void Set(const PhaseMicros& times, v1::Timing* proto) {
  proto->set_queue_us(times.queue_us);
  proto->set_prefill_us(times.prefill_us);
  proto->set_handover_hidden_us(times.handover_hidden_us);
  proto->set_handover_exposed_us(times.handover_exposed_us);
  proto->set_decode_wait_us(times.decode_wait_us);
  proto->set_decode_us(times.decode_us);
  proto->set_ttft_us(times.ttft_us);
  proto->set_total_us(times.total_us);
}

void Set(const SloVerdict& verdict, v1::SloVerdict* proto) {
  proto->set_met(verdict.met());
  if (verdict.ttft_met) proto->set_ttft_met(*verdict.ttft_met);
  if (verdict.tpot_met) proto->set_tpot_met(*verdict.tpot_met);
  proto->set_lost_to(static_cast<v1::SloPhase>(verdict.lost_to));
}

void Set(AnswerSummary&& summary, v1::Summary* proto) {
  proto->set_index(summary.index);
  Set(summary.usage, proto->mutable_usage());
  if (summary.total) Set(*summary.total, proto->mutable_total());
  proto->set_seed(summary.seed);
  Set(summary.timing, proto->mutable_timing());
  proto->set_prefill_worker(std::move(summary.prefill_worker));
  proto->set_decode_worker(std::move(summary.decode_worker));
  proto->set_link(std::move(summary.link));
  proto->set_decode_cached_tokens(summary.decode_cached_tokens);
  proto->set_migrations(summary.migrations);
  proto->set_mode(static_cast<v1::ServingMode>(summary.mode));
  if (summary.slo) Set(*summary.slo, proto->mutable_slo());
}

ChatMessage MessageFromProto(v1::ChatMessage&& message) {
  ChatMessage plain;
  plain.role = std::move(*message.mutable_role());
  if (message.has_text()) {
    plain.content = std::move(*message.mutable_text());
  } else if (message.has_parts()) {
    auto& texts = *message.mutable_parts()->mutable_texts();
    plain.content = std::vector<std::string>(std::make_move_iterator(texts.begin()),
                                             std::make_move_iterator(texts.end()));
  }
  if (message.has_name()) plain.name = std::move(*message.mutable_name());
  if (message.has_tool_call_id()) plain.tool_call_id = std::move(*message.mutable_tool_call_id());
  if (message.has_reasoning()) plain.reasoning = std::move(*message.mutable_reasoning());
  for (v1::ChatToolCall& call : *message.mutable_tool_calls()) {
    plain.tool_calls.push_back({std::move(*call.mutable_id()), std::move(*call.mutable_name()),
                                std::move(*call.mutable_arguments())});
  }
  return plain;
}

Chat ChatFromProto(v1::Chat&& chat) {
  Chat plain;
  for (v1::ChatMessage& message : *chat.mutable_messages()) {
    plain.messages.push_back(MessageFromProto(std::move(message)));
  }
  plain.tools = std::move(*chat.mutable_tools());
  plain.documents = std::move(*chat.mutable_documents());
  plain.template_kwargs = std::move(*chat.mutable_template_kwargs());
  if (chat.has_add_generation_prompt()) plain.add_generation_prompt = chat.add_generation_prompt();
  plain.continue_final_message = chat.continue_final_message();
  return plain;
}

}  // namespace

absl::Status CheckMode(v1::ServingMode mode) {
  if (v1::ServingMode_IsValid(mode)) return absl::OkStatus();
  return BadParameter(
      "mode", absl::StrCat("mode is ", static_cast<int>(mode),
                           "; it takes 1 (disaggregated), 2 (colocated), 3 (auto), or 0 for the "
                           "router's own"));
}

ClientRequest RequestFromProto(v1::GenerateRequest&& request) {
  ClientRequest plain;
  plain.request_id = std::move(*request.mutable_request_id());
  plain.model = std::move(*request.mutable_model());
  if (request.has_text()) {
    plain.prompt = std::move(*request.mutable_text());
  } else if (request.has_token_ids()) {
    const auto& ids = request.token_ids().ids();
    plain.prompt = std::vector<TokenId>(ids.begin(), ids.end());
  } else if (request.has_chat()) {
    plain.prompt = ChatFromProto(std::move(*request.mutable_chat()));
  }
  plain.parse_special = request.parse_special();
  if (request.has_add_special()) plain.add_special = request.add_special();
  plain.sampling = std::move(*request.mutable_sampling());
  plain.mode = static_cast<ServingMode>(request.mode());
  if (request.slo().has_ttft_ms()) plain.ttft_ms = request.slo().ttft_ms();
  if (request.slo().has_tpot_ms()) plain.tpot_ms = request.slo().tpot_ms();
  plain.cache_salt = std::move(*request.mutable_cache_salt());
  plain.prefix_cache = !request.has_prefix_cache() || request.prefix_cache();
  return plain;
}

v1::GenerateEvent ToProto(ClientEvent event) {
  v1::GenerateEvent proto;
  std::visit(Overloaded{
                 [&](AnswerAccepted& e) {
                   v1::Accepted& accepted = *proto.mutable_accepted();
                   accepted.set_request_id(std::move(e.request_id));
                   accepted.set_model(std::move(e.model));
                   accepted.set_prompt_tokens(e.prompt_tokens);
                 },
                 [&](PromptLogprobs& e) {
                   Set(std::move(e.tokens), proto.mutable_prompt_logprobs()->mutable_tokens());
                 },
                 [&](AnswerDelta& e) {
                   v1::Delta& delta = *proto.mutable_delta();
                   delta.set_index(e.index);
                   delta.set_text(std::move(e.text));
                   Set(std::move(e.tokens), delta.mutable_tokens());
                 },
                 [&](AnswerFinished& e) {
                   v1::Finished& finished = *proto.mutable_finished();
                   finished.set_index(e.index);
                   finished.set_reason(e.reason);
                   finished.set_matched_stop(std::move(e.matched_stop));
                   if (e.stop_token) finished.set_stop_token_id(*e.stop_token);
                   finished.set_limit(std::move(e.limit));
                 },
                 [&](AnswerSummary& e) { Set(std::move(e), proto.mutable_summary()); },
             },
             event);
  return proto;
}

std::string AddressOfPeer(absl::string_view peer) {
  const size_t port = peer.rfind(':');
  const bool address = peer.substr(0, 5) == "ipv4:" || peer.substr(0, 5) == "ipv6:";
  return std::string(address && port > 4 ? peer.substr(0, port) : peer);
}

}  // namespace baton
