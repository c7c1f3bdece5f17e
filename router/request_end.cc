#include <utility>

#include "common/base/log.h"
#include "router/router_core_parts.h"

// What the client gets, and how its request ends.
namespace baton {
namespace {

absl::string_view ServedName(v1::ServingMode mode) {
  return mode == v1::SERVING_MODE_COLOCATED       ? "colocated"
         : mode == v1::SERVING_MODE_DISAGGREGATED ? "disaggregated"
                                                  : "none";
}

}  // namespace

void RouterCore::Parts::Send(Request& request, v1::GenerateEvent event) {
  request.writable = false;
  const uint32_t index = request.checked.sampling.answer_index;
  if (event.has_delta()) event.mutable_delta()->set_index(index);
  if (event.has_finished()) event.mutable_finished()->set_index(index);
  if (event.has_summary()) event.mutable_summary()->set_index(index);
  actions.push_back(SendToClient{request.client(), std::move(event)});
}

// Some of the prompt's logprobs, as much as one message may well hold.
void RouterCore::Parts::SendScores(Request& request) {
  constexpr int kAtOnce = 512;
  v1::GenerateEvent event;
  auto* tokens = event.mutable_prompt_logprobs()->mutable_tokens();
  while (!request.unsent_scores.empty() && tokens->size() < kAtOnce) {
    *tokens->Add() = std::move(request.unsent_scores.front());
    request.unsent_scores.pop_front();
  }
  Send(request, std::move(event));
}

// For the client to read: of the answer, and of the prompt with their logprobs.
size_t RouterCore::Parts::WaitingTokens(const Request& request) {
  return request.answer.pending_tokens() + request.unsent_scores.size();
}

// Gives the client what has gathered, when it takes more; otherwise watches how much has.
void RouterCore::Parts::Pump(Request& request, absl::Time now) {
  if (request.stage == Request::Stage::kFinished) return;
  Leg* leg = request.decode_leg == 0 ? nullptr : FindLeg(request.decode_leg);
  if (request.writable && !request.unsent_scores.empty()) {
    SendScores(request);
    request.slow_since.reset();  // it reads
  } else if (request.writable && request.answer.has_pending()) {
    if (request.answer.pending_tokens() > 0) FirstShown(request, now);
    v1::GenerateEvent event;
    *event.mutable_delta() = request.answer.TakePending();
    Send(request, std::move(event));
  }
  const bool full = WaitingTokens(request) >= static_cast<size_t>(options.client_buffer_tokens);
  if (full && !request.slow_since) request.slow_since = now;
  if (!full) request.slow_since.reset();
  const bool pause = full || !request.early.empty();
  if (leg != nullptr && leg->paused != pause) {
    leg->paused = pause;
    leg->heard = now;
    if (pause) {
      actions.push_back(PauseLeg{leg->key});
    } else {
      actions.push_back(ResumeLeg{leg->key});
    }
  }
}

void RouterCore::Parts::LogFinished(const Request& request, const absl::Status& status,
                                    const v1::SloVerdict* verdict) const {
  if (!LogEnabled(Severity::kInfo)) return;
  const v1::Timing& timing = request.timing;
  const bool missed = verdict != nullptr && !verdict->met();
  Log(Severity::kInfo, "request_finished",
      {{kRequestId, request.checked.request_id},
       {"answer", request.checked.sampling.answer_index},
       {"code", absl::StatusCodeToString(status.code())},
       {"because", status.message()},
       {"mode", ServedName(request.served)},
       {"prompt_tokens", request.checked.prompt.size()},
       {"generated_tokens", request.answer.tokens().size()},
       {"ttft_us", timing.ttft_us()},
       {"total_us", Micros(request.finished - request.checked.arrival)},
       {"queue_us", timing.queue_us()},
       {"prefill_us", timing.prefill_us()},
       {"handover_hidden_us", timing.handover_hidden_us()},
       {"handover_exposed_us", timing.handover_exposed_us()},
       {"decode_wait_us", timing.decode_wait_us()},
       {"decode_us", timing.decode_us()},
       {"slo", verdict == nullptr ? "none"
               : missed           ? "missed"
                                  : "met"},
       {"lost_to", missed ? SloPhaseName(verdict->lost_to()) : "nothing"},
       {"migrations", request.migrations},
       {"prefill_worker", request.prefill_address},
       {"decode_worker", request.decode_address},
       {"link", request.link}});
}

RequestMetrics::Served& RouterCore::Parts::ServedOf(const Request& request) {
  const v1::ServingMode mode =
      request.served == v1::SERVING_MODE_UNSPECIFIED ? ModeOf(request) : request.served;
  return mode == v1::SERVING_MODE_COLOCATED ? metrics->colocated : metrics->disaggregated;
}

void RouterCore::Parts::FirstShown(Request& request, absl::Time now) {
  if (std::exchange(request.shown, true)) return;
  const absl::Duration ttft = now - request.checked.arrival;
  request.timing.set_ttft_us(Micros(ttft));
  v1::Timing& then = request.timing_at_first;
  then = request.timing;
  if (!request.first_token_at && request.ticket_at && request.first_decode_at) {
    // The decode worker was faster.
    then.set_queue_us(then.queue_us() + Micros(*request.ticket_at - request.enqueued));
    then.set_prefill_us(then.prefill_us() + Micros(now - *request.ticket_at));
  }
  ServedOf(request).ttft.Observe(ttft);
}

// A try that a worker broke off has no figures of the worker's own: what the router saw of it is
// added.
void RouterCore::Parts::AccountBrokenTry(Request& request, absl::Time now) {
  v1::Timing& timing = request.timing;
  if (!request.first_token_at) {
    const absl::Time began = request.ticket_at.value_or(now);
    // Of a colocated prompt the queue was counted when it began.
    if (!request.colocated || !request.ticket_at) {
      timing.set_queue_us(timing.queue_us() + Micros(began - request.enqueued));
    }
    timing.set_prefill_us(timing.prefill_us() + Micros(now - began));
  } else if (request.first_decode_at) {
    timing.set_handover_exposed_us(timing.handover_exposed_us() +
                                   Micros(*request.first_decode_at - *request.first_token_at));
    timing.set_decode_us(timing.decode_us() + Micros(now - *request.first_decode_at));
  } else {
    timing.set_handover_exposed_us(timing.handover_exposed_us() +
                                   Micros(now - *request.first_token_at));
  }
  request.ticket_at.reset();
  request.first_token_at.reset();
  request.first_decode_at.reset();
}

void RouterCore::Parts::FinishOk(Request& request, const AnswerEnd& end,
                                 const v1::DecodeFinished* finished, absl::Time now) {
  CloseLegs(request, now);
  request.answer.Close();
  AnswerEnd how = end;
  if (!request.answer.matched_stop().empty()) {
    // Also when the last half of a character completed one.
    how = {v1::FINISH_REASON_STOP, std::nullopt, request.answer.matched_stop()};
  }
  v1::Timing& timing = request.timing;
  if (!request.first_token_at && request.ticket_at && request.first_decode_at) {
    // Decode was done before the prefill worker's own figures arrived.
    timing.set_queue_us(timing.queue_us() + Micros(*request.ticket_at - request.enqueued));
    timing.set_prefill_us(timing.prefill_us() +
                          Micros(*request.first_decode_at - *request.ticket_at));
    request.first_token_at = request.first_decode_at;
  }
  if (finished != nullptr) {
    timing.set_handover_hidden_us(timing.handover_hidden_us() + finished->handover_hidden_us());
    timing.set_handover_exposed_us(timing.handover_exposed_us() + finished->handover_exposed_us());
    timing.set_decode_wait_us(timing.decode_wait_us() + finished->decode_wait_us());
    timing.set_decode_us(timing.decode_us() + finished->decode_us());
    if (!finished->link().empty()) request.link = finished->link();
  } else if (request.first_token_at && request.first_decode_at) {
    AccountBrokenTry(request, now);
  }
  // Whatever waits leaves now; each buffer of it has the time that a slow client may take.
  const size_t buffers = WaitingTokens(request) / static_cast<size_t>(options.client_buffer_tokens);
  request.leave_limit = options.slow_client_limit * (1 + static_cast<int64_t>(buffers));
  while (!request.unsent_scores.empty()) SendScores(request);
  if (request.answer.has_pending()) {
    FirstShown(request, now);
    v1::GenerateEvent event;
    *event.mutable_delta() = request.answer.TakePending();
    Send(request, std::move(event));
  }
  timing.set_total_us(Micros(now - request.checked.arrival));
  ServedOf(request).Finished(timing, request.answer.tokens().size());
  metrics->prompt_lengths.Observe(static_cast<double>(request.checked.prompt.size()));
  metrics->answer_lengths.Observe(static_cast<double>(request.answer.tokens().size()));

  v1::GenerateEvent event;
  event.mutable_finished()->set_reason(how.reason);
  event.mutable_finished()->set_matched_stop(how.matched_stop);
  if (how.stop_token) event.mutable_finished()->set_stop_token_id(*how.stop_token);
  Send(request, std::move(event));

  v1::GenerateEvent last;
  v1::Summary& summary = *last.mutable_summary();
  summary.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(request.checked.prompt.size()));
  summary.mutable_usage()->set_completion_tokens(
      static_cast<uint32_t>(request.answer.tokens().size()));
  summary.set_seed(request.checked.sampling.seed);
  *summary.mutable_timing() = timing;
  summary.set_prefill_worker(request.prefill_address);
  summary.set_decode_worker(request.decode_address);
  summary.set_link(request.link);
  summary.set_mode(request.served);
  summary.set_migrations(static_cast<uint32_t>(request.migrations));
  std::optional<v1::SloVerdict> verdict;
  if (request.checked.slo.any()) {
    verdict = JudgeSlo(request.checked.slo, request.timing_at_first, timing,
                       request.answer.tokens().size());
    metrics->Judged(*verdict, request.answer.tokens().size());
    *summary.mutable_slo() = *verdict;
  }
  AnswerGroup* group = GroupOf(request);
  if (group != nullptr) group->completion_tokens += request.answer.tokens().size();
  if (group == nullptr || group->done + 1 == group->answers) {
    *summary.mutable_total() = summary.usage();
    if (group != nullptr) {
      summary.mutable_total()->set_completion_tokens(
          static_cast<uint32_t>(group->completion_tokens));
    }
  }
  Send(request, std::move(last));

  request.stage = Request::Stage::kFinished;
  request.finished = now;
  ++counters.finished_ok;
  LogFinished(request, absl::OkStatus(), verdict ? &*verdict : nullptr);
  EndClient(request, absl::OkStatus());
  SetTimer(request);
}

void RouterCore::Parts::FinishError(Request& request, absl::Status status, absl::Time now) {
  CloseLegs(request, now);
  if (request.stage == Request::Stage::kQueued) Dequeue(request);
  request.stage = Request::Stage::kFinished;
  request.finished = now;
  request.leave_limit = options.slow_client_limit;
  ++counters.finished_error;
  if (request.checked.slo.any()) metrics->Failed(status, request.answer.tokens().size());
  LogFinished(request, status, nullptr);
  EndClient(request, std::move(status));
  SetTimer(request);
}

}  // namespace baton
