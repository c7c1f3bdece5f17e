#include "router/core/clients.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "router/core/attempt.h"

namespace baton {
namespace {

absl::string_view ModeName(ServingMode mode) {
  return mode == ServingMode::kColocated       ? "colocated"
         : mode == ServingMode::kDisaggregated ? "disaggregated"
                                               : "none";
}

void LogFinished(const Request& request, const absl::Status& status, const SloVerdict* verdict) {
  if (!LogEnabled(Severity::kInfo)) return;
  const RequestSummary& summary = request.summary;
  const PhaseMicros& timing = summary.timing;
  const bool missed = verdict != nullptr && !verdict->met();
  Log(Severity::kInfo, "request_finished",
      {{kRequestId, request.checked.request_id},
       {"answer", request.answer_index},
       {"code", absl::StatusCodeToString(status.code())},
       {"because", status.message()},
       {"mode", ModeName(summary.mode)},
       {"prompt_tokens", request.checked.prompt.size()},
       {"generated_tokens", request.answer.tokens().size()},
       {"ttft_us", timing.ttft_us},
       {"total_us", Micros(*request.client.ended_at - request.checked.arrival)},
       {"queue_us", timing.queue_us},
       {"prefill_us", timing.prefill_us},
       {"handover_hidden_us", timing.handover_hidden_us},
       {"handover_exposed_us", timing.handover_exposed_us},
       {"decode_wait_us", timing.decode_wait_us},
       {"decode_us", timing.decode_us},
       {"slo", verdict == nullptr ? "none"
               : missed           ? "missed"
                                  : "met"},
       {"lost_to", missed ? SloPhaseName(verdict->lost_to) : "nothing"},
       {"migrations", summary.migrations},
       {"prefill_worker", summary.prefill_address},
       {"decode_worker", summary.decode_address},
       {"link", summary.link}});
}

}  // namespace

void Clients::Open(RequestKey client, int answers) {
  BATON_CHECK(client != 0 && client >> Request::kClientBits == 0 && clients_.count(client) == 0)
      << "request key " << client;
  clients_[client].answers = answers;
}

Request& Clients::Add(RequestKey client, int index, std::shared_ptr<const CheckedRequest> checked) {
  BATON_CHECK(!checked->prompt.empty()) << "an empty prompt";
  const RouterCoreOptions& options = core_->options;
  std::optional<TextDecoder> decoder;
  if (options.new_decoder) decoder = options.new_decoder(checked->prompt, checked->skip_special);
  AnswerSoFar answer(checked->prompt.size(), checked->sampling, checked->stop, std::move(decoder),
                     options.vocab);
  const RequestKey key = Request::KeyOf(client, index);
  Request& request =
      requests_.try_emplace(key, key, std::move(checked), index, std::move(answer)).first->second;
  request.caller = core_->callers.Join(request.checked.caller);
  clients_.at(client).requests.push_back(&request);
  request.queue.since = request.checked.arrival;
  return request;
}

void Clients::Remove(RequestKey client) {
  for (Request* request : RequestsOf(client)) {
    core_->timers.Set(*request, absl::InfiniteFuture());
    core_->callers.Leave(request->caller);
    if (request->identity) {
      const auto bound = bound_.find(*request->identity);
      if (--bound->second == 0) bound_.erase(bound);
    }
    requests_.erase(request->key);
  }
  clients_.erase(client);
}

std::vector<Request*> Clients::RequestsOf(RequestKey client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? std::vector<Request*>() : found->second.requests;
}

void Clients::Bind(Request& request, const ModelIdentity& identity) {
  if (!request.identity) {
    for (Request* one : RequestsOf(request.client_key())) {
      one->identity = identity;
      ++bound_[identity];
    }
  }
  BATON_CHECK(request.identity == identity)
      << "request " << request.key << " began with " << request.identity->ToString()
      << " and was given to a worker with " << identity.ToString();
}

void Clients::NoteWorker(const Request& request, LegKind leg, WorkerKey worker) {
  for (Request* other : ClientOf(request).requests) {
    if (other != &request) other->siblings[static_cast<size_t>(leg)] = worker;
  }
}

std::set<ModelIdentity> Clients::bound() const {
  std::set<ModelIdentity> identities;
  for (const auto& [identity, requests] : bound_) identities.insert(identity);
  return identities;
}

void Clients::Accept(Request& request) {
  core_->metrics->prompt_tokens.Add(request.checked.prompt.size());
  if (request.answer_index > 0) return;
  if (LogEnabled(Severity::kDebug)) {
    Log(Severity::kDebug, "request_accepted",
        {{kRequestId, request.checked.request_id},
         {"prompt_tokens", request.checked.prompt.size()},
         {"max_tokens", request.max_tokens},
         {"answers", request.checked.answers}});
  }
  Send(request,
       AnswerAccepted{.request_id = request.checked.request_id,
                      .model = core_->options.model_name,
                      .prompt_tokens = static_cast<uint32_t>(request.checked.prompt.size())});
}

void Clients::Send(Request& request, ClientEvent event) {
  request.client.writable = false;
  core_->actions.push_back(SendToClient{request.client_key(), std::move(event)});
}

// Sends one message with logprobs of the prompt, at most kAtOnce tokens.
void Clients::SendScores(Request& request) {
  constexpr size_t kAtOnce = 512;
  std::deque<v1::Token>& unsent = request.client.unsent_scores;
  PromptLogprobs scores;
  while (!unsent.empty() && scores.tokens.size() < kAtOnce) {
    scores.tokens.push_back(std::move(unsent.front()));
    unsent.pop_front();
  }
  Send(request, std::move(scores));
}

void Clients::SendTokens(Request& request) {
  AnswerDelta delta = request.answer.TakePending();
  delta.index = request.answer_index;
  Send(request, std::move(delta));
}

size_t Clients::WaitingTokens(const Request& request) {
  return request.answer.pending_tokens() + request.client.unsent_scores.size();
}

void Clients::ShowFirst(Request& request, const AttemptTimes& attempt) {
  const absl::Time arrival = request.checked.arrival;
  if (!request.summary.ShowFirst(attempt, arrival, core_->now)) return;
  ServedOf(request).ttft.Observe(core_->now - arrival);
}

bool Clients::Flush(Request& request) {
  ClientStream& client = request.client;
  if (request.finished()) return false;
  if (client.writable && !client.unsent_scores.empty()) {
    SendScores(request);
    client.slow_since.reset();  // The client has taken messages, so it is not slow.
  } else if (client.writable && request.answer.has_pending()) {
    if (request.answer.pending_tokens() > 0) {
      ShowFirst(request, request.attempt ? request.attempt->times() : AttemptTimes());
    }
    SendTokens(request);
  }
  const bool full =
      WaitingTokens(request) >= static_cast<size_t>(core_->options.client_buffer_tokens);
  if (full && !client.slow_since) client.slow_since = core_->now;
  if (!full) client.slow_since.reset();
  return full;
}

void Clients::Answer(Request& request, const AnswerEnd& end) {
  request.answer.Close();
  AnswerEnd how = end;
  if (!request.answer.matched_stop().empty()) {
    // The last text, which request.answer.Close() adds, may complete a stop string.
    how = {v1::FINISH_REASON_STOP, std::nullopt, request.answer.matched_stop()};
  }
  RequestSummary& summary = request.summary;
  if (request.attempt) {
    summary.AddComplete(request.attempt->times(), request.attempt->finished(), core_->now);
  }
  // All waiting messages are sent now, and the client may need long to read them. So the client
  // gets the time limit of a slow client, plus the same time for each full buffer that is sent.
  const RouterCoreOptions& options = core_->options;
  const size_t buffers = WaitingTokens(request) / static_cast<size_t>(options.client_buffer_tokens);
  const absl::Duration leave_limit =
      options.slow_client_limit * (1 + static_cast<int64_t>(buffers));
  while (!request.client.unsent_scores.empty()) SendScores(request);
  if (request.answer.has_pending()) {
    // Passes no times: AddComplete has added the times of the attempt to the summary already.
    ShowFirst(request, AttemptTimes());
    SendTokens(request);
  }
  const size_t prompt = request.checked.prompt.size(), tokens = request.answer.tokens().size();
  summary.timing.total_us = Micros(core_->now - request.checked.arrival);
  ServedOf(request).Finished(summary.timing, tokens);
  core_->metrics->prompt_lengths.Observe(static_cast<double>(prompt));
  core_->metrics->answer_lengths.Observe(static_cast<double>(tokens));

  AnswerFinished finished = {.index = request.answer_index,
                             .reason = how.reason,
                             .matched_stop = how.matched_stop,
                             .stop_token = how.stop_token};
  if (how.reason == v1::FINISH_REASON_LENGTH &&
      request.checked.default_max_tokens == request.max_tokens) {
    finished.limit = request.checked.default_name;
  }
  Send(request, std::move(finished));

  AnswerSummary said = {.index = request.answer_index,
                        .usage = {.prompt_tokens = static_cast<uint32_t>(prompt),
                                  .cached_tokens = summary.cached_tokens,
                                  .completion_tokens = static_cast<uint32_t>(tokens)},
                        .seed = request.checked.sampling.seed,
                        .timing = summary.timing,
                        .prefill_worker = summary.prefill_address,
                        .decode_worker = summary.decode_address,
                        .link = summary.link,
                        .decode_cached_tokens = summary.decode_cached_tokens,
                        .migrations = static_cast<uint32_t>(summary.migrations),
                        .mode = summary.mode};
  if (request.checked.slo.any()) {
    said.slo = JudgeSlo(request.checked.slo, summary.at_first_token, summary.timing, tokens);
    core_->metrics->Judged(*said.slo, tokens);
  }
  const std::optional<SloVerdict> verdict = said.slo;
  Client& client = ClientOf(request);
  client.completion_tokens += tokens;
  if (client.done + 1 == client.answers) {
    said.total = said.usage;
    said.total->completion_tokens = static_cast<uint32_t>(client.completion_tokens);
  }
  Send(request, std::move(said));
  ++core_->counters.finished_ok;
  core_->forecast.AnswerDone(tokens, request.max_tokens);
  End(request, leave_limit, absl::OkStatus(), verdict ? &*verdict : nullptr);
}

void Clients::Fail(Request& request, const absl::Status& status) {
  ++core_->counters.finished_error;
  if (request.checked.slo.any()) {
    core_->metrics->Failed(status, request.answer.tokens().size());
  }
  End(request, core_->options.slow_client_limit, status, nullptr);
}

void Clients::End(Request& request, absl::Duration leave_limit, const absl::Status& status,
                  const SloVerdict* verdict) {
  request.client.ended_at = core_->now;
  request.client.leave_limit = leave_limit;
  LogFinished(request, status, verdict);
  Client& client = ClientOf(request);
  if (client.status) return;
  if (status.ok() && ++client.done < client.answers) return;
  client.status = status;
  if (!status.ok() && client.answers > 1) {
    failed_.push_back({request.client_key(), status.code()});
    const int never_added = client.answers - static_cast<int>(client.requests.size());
    if (request.checked.slo.any()) core_->metrics->Failed(status, 0, never_added);
  }
  ServedOf(request).Ended(status);
  core_->actions.push_back(FinishClient{request.client_key(), status});
}

void Clients::Abort(Request& request) {
  request.client.aborted = true;
  Client& client = ClientOf(request);
  if (!client.status || std::exchange(client.aborted, true)) return;
  core_->actions.push_back(AbortClient{request.client_key()});
}

bool Clients::Failed(RequestKey client) const {
  const std::optional<absl::Status>& status = clients_.at(client).status;
  return status && !status->ok();
}

RequestMetrics::Served& Clients::ServedOf(const Request& request) {
  const ServingMode mode = request.summary.mode == ServingMode::kUnspecified ? request.checked.mode
                                                                             : request.summary.mode;
  return mode == ServingMode::kColocated ? core_->metrics->colocated
                                         : core_->metrics->disaggregated;
}

}  // namespace baton
