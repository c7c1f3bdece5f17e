#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "router/router_core_parts.h"

// Both legs of a request, and the failure table of the design.
namespace baton {
namespace {

constexpr absl::Duration kFullPause = absl::Milliseconds(20);
constexpr absl::Duration kFirstRoomPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestRoomPause = absl::Milliseconds(320);

// The second try comes at once; a request that keeps failing leaves longer and longer pauses.
absl::Duration PauseBefore(int migration) {
  if (migration <= 1) return absl::ZeroDuration();
  return std::min(absl::Milliseconds(10) * (1 << std::min(migration - 2, 6)),
                  absl::Milliseconds(500));
}

// What a lost worker was doing for a request: queue, prefill, pull or decode.
absl::string_view PhaseOf(const Request& request, bool lost_decode) {
  if (request.handed_over) return "decode";
  if (request.colocated) return request.promised ? "prefill" : "queue";
  if (lost_decode || request.first_token_at) return "pull";
  return request.ticket ? "prefill" : "queue";
}

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace

void RouterCore::Parts::OpenPrefill(Request& request, Worker& worker, absl::Time now) {
  request.stage = Request::Stage::kRunning;
  request.not_before = absl::InfinitePast();
  Bind(request, worker.identity);
  request.base = request.answer.tokens().size();
  request.prefill_worker = worker.name.key;
  request.prefill_address = worker.name.address;
  request.decode_attempt = 0;
  request.scored = 0;
  request.served = v1::SERVING_MODE_DISAGGREGATED;

  StartPrefill start{
      .leg = next_leg++, .worker = worker.name, .deadline = request.checked.deadline};
  start.request.set_request_id(request.checked.request_id);
  start.request.set_attempt(request.prefill_attempt++);
  auto* ids = start.request.mutable_token_ids();
  ids->Add(request.checked.prompt.begin(), request.checked.prompt.end());
  ids->Add(request.answer.tokens().begin(), request.answer.tokens().end());
  start.request.set_original_prompt_tokens(static_cast<uint32_t>(request.checked.prompt.size()));
  *start.request.mutable_sampling() = SamplingToProto(request.checked.sampling);
  // Another try scores the prompt again only if some of it is still missing.
  if (!request.awaits_scores()) start.request.mutable_sampling()->clear_prompt_logprobs();
  start.request.set_answer_index(request.checked.sampling.answer_index);

  Leg& leg = legs[start.leg];
  leg = {.key = start.leg,
         .request = request.key,
         .worker = worker.name.key,
         .prefill = true,
         .started = now,
         .heard = now,
         .prompt_tokens = static_cast<uint64_t>(ids->size())};
  request.prefill_leg = leg.key;
  ++worker.legs;
  ++worker.prompts;
  worker.prompt_tokens += leg.prompt_tokens;
  actions.push_back(std::move(start));
}

void RouterCore::Parts::OnPrefill(Leg& leg, v1::PrefillEvent event, absl::Time now) {
  Request& request = requests.at(leg.request);
  leg.heard = now;
  switch (event.event_case()) {
    case v1::PrefillEvent::kTicket:
      if (request.ticket) {
        LegFailed(leg, absl::DataLossError("the prefill worker sent two tickets"), false, now);
        return;
      }
      request.ticket = std::move(*event.mutable_ticket());
      request.ticket_at = now;
      request.refused_since.reset();
      TryDecode(request, now);
      break;
    case v1::PrefillEvent::kFirstToken:
      OnFirstToken(request, leg, event.first_token(), now);
      break;
    case v1::PrefillEvent::kPromptTokens:
      OnPromptTokens(request, leg, std::move(*event.mutable_prompt_tokens()), now);
      break;
    case v1::PrefillEvent::EVENT_NOT_SET:
      LegFailed(leg, absl::DataLossError("the prefill worker sent an unknown event"), false, now);
      return;
  }
  if (request.stage != Request::Stage::kFinished) SetTimer(request);
}

// Known ones, of a try before, are only checked for their place.
void RouterCore::Parts::OnPromptTokens(Request& request, Leg& leg, v1::PromptTokens tokens,
                                       absl::Time now) {
  const bool wanted = request.checked.sampling.prompt_logprobs.has_value();
  for (v1::Token& token : *tokens.mutable_tokens()) {
    const size_t position = request.scored;
    const bool fits = wanted && position < request.checked.prompt.size() &&
                      token.position() == position &&
                      token.token_id() == request.checked.prompt[position] &&
                      token.has_logprob() == (position > 0);
    if (!fits) {
      LegFailed(leg,
                absl::DataLossError(
                    absl::StrCat("the logprob of token ", token.token_id(), " at position ",
                                 token.position(), " of the prompt is none that was asked for; ",
                                 position, " of ", request.checked.prompt.size(), " had come")),
                false, now);
      return;
    }
    ++request.scored;
    if (position < request.prompt_scored) continue;
    ++request.prompt_scored;
    request.unsent_scores.push_back(std::move(token));
  }
  Pump(request, now);
  if (request.awaits_scores()) return;
  for (v1::DecodeEvent& event : std::exchange(request.early, {})) {
    Leg* decode = request.decode_leg == 0 ? nullptr : FindLeg(request.decode_leg);
    if (decode == nullptr) return;
    OnDecode(*decode, std::move(event), now);
  }
  Pump(request, now);
}

void RouterCore::Parts::OnFirstToken(Request& request, Leg& leg, const v1::FirstToken& first,
                                     absl::Time now) {
  if (request.awaits_scores()) {
    LegFailed(leg,
              absl::DataLossError(absl::StrCat(
                  "the prefill worker sent the first token after the logprobs of ",
                  request.prompt_scored, " of ", request.checked.prompt.size(), " prompt tokens")),
              false, now);
    return;
  }
  if (request.first_token_at) {
    LegFailed(leg, absl::DataLossError("the prefill worker sent two first tokens"), false, now);
    return;
  }
  PromptDone(leg);
  request.first_token_at = now;
  request.timing.set_queue_us(request.timing.queue_us() + Micros(leg.started - request.enqueued) +
                              first.queue_us());
  request.timing.set_prefill_us(request.timing.prefill_us() + first.prefill_us());
  const size_t position = request.checked.prompt.size() + request.base;
  if (first.token().position() != position) {
    LegFailed(leg,
              absl::DataLossError(absl::StrCat("the first token has position ",
                                               first.token().position(), ", not ", position)),
              false, now);
    return;
  }
  AnswerEnd end{.reason = first.finish_reason()};
  if (end.reason == v1::FINISH_REASON_STOP) end.stop_token = first.token().token_id();
  if (const absl::Status status = request.answer.CheckEnd(
          end, first.token().token_id(), request.base + 1, request.checked.sampling.max_tokens);
      !status.ok()) {
    LegFailed(leg, WithContext(status, "the first token"), false, now);
    return;
  }
  if (end.reason != v1::FINISH_REASON_UNSPECIFIED) {
    // The answer ends here: no hand-over, and nothing to wait for.
    if (!TakeToken(request, leg.key, first.token(), now)) return;
    if (request.base == 0) {
      request.decode_address.clear();
      request.link.clear();
    }
    FinishOk(request, end, nullptr, now);
    return;
  }
  if (!request.promised) {
    request.held_first = first.token();
    return;
  }
  if (TakeToken(request, leg.key, first.token(), now)) Pump(request, now);
}

void RouterCore::Parts::PromptDone(Leg& leg) {
  if (Worker* worker = workers.Find(leg.worker); worker != nullptr && leg.prompt_tokens > 0) {
    --worker->prompts;
    worker->prompt_tokens -= leg.prompt_tokens;
    dispatch_due = true;
  }
  leg.prompt_tokens = 0;
}

void RouterCore::Parts::TryDecode(Request& request, absl::Time now) {
  Worker* prefill = workers.Find(request.prefill_worker);
  BATON_CHECK(prefill != nullptr && request.ticket && request.prefill_leg != 0)
      << "request " << request.key << " has no ticket to decode";
  int partners = 0;
  Worker* worker = workers.ChooseDecode(*prefill, NeedOf(request, request.avoid_decode),
                                        request.refused_by, now, &partners);
  if (worker == nullptr) {
    if (!request.room_since) {
      request.room_since = now - request.room_waited;
      request.room_pause = kFirstRoomPause;
    }
    // A prefill worker that nobody can pull from is of no use: another one may be.
    if (partners > 0) {
      request.partnerless_since.reset();
    } else if (!request.partnerless_since) {
      request.partnerless_since = now;
    } else if (now - *request.partnerless_since >= options.report_limit) {
      request.avoid_prefill = request.prefill_worker;
      Restart(request,
              absl::UnavailableError(
                  absl::StrCat("no decode worker can pull from ", request.prefill_address)),
              now);
      return;
    }
    waiting_room.insert(request.key);
    request.refused_by.clear();
    request.room_retry = now + request.room_pause;
    request.room_pause = std::min(request.room_pause * 2, kLongestRoomPause);
    SetTimer(request);
    return;
  }
  request.partnerless_since.reset();
  request.room_retry = absl::InfiniteFuture();
  request.link = WorkerTable::LinkName(*worker, prefill->name.epoch);
  StartDecode start = OpenDecode(request, *worker, now);
  *start.request.mutable_ticket() = *request.ticket;
  start.request.mutable_sampling()->clear_prompt_logprobs();
  actions.push_back(std::move(start));
}

StartDecode RouterCore::Parts::OpenDecode(Request& request, Worker& worker, absl::Time now) {
  request.decode_worker = worker.name.key;
  request.decode_address = worker.name.address;
  StartDecode start{.leg = next_leg++, .worker = worker.name, .deadline = request.checked.deadline};
  start.request.set_request_id(request.checked.request_id);
  start.request.set_attempt(request.decode_attempt++);
  auto* ids = start.request.mutable_token_ids();
  ids->Add(request.checked.prompt.begin(), request.checked.prompt.end());
  ids->Add(request.answer.tokens().begin(),
           request.answer.tokens().begin() + static_cast<ptrdiff_t>(request.base));
  start.request.set_original_prompt_tokens(static_cast<uint32_t>(request.checked.prompt.size()));
  *start.request.mutable_sampling() = SamplingToProto(request.checked.sampling);
  start.request.set_answer_index(request.checked.sampling.answer_index);

  Leg& leg = legs[start.leg];
  leg = {.key = start.leg,
         .request = request.key,
         .worker = worker.name.key,
         .prefill = false,
         .started = now,
         .heard = now};
  request.decode_leg = leg.key;
  ++worker.legs;
  worker.new_blocks += worker.BlocksFor(NeedOf(request, 0).tokens);
  return start;
}

void RouterCore::Parts::OnDecode(Leg& leg, v1::DecodeEvent event, absl::Time now) {
  Request& request = requests.at(leg.request);
  leg.heard = now;
  if (!request.colocated && request.awaits_scores() && !event.has_promised()) {
    request.early.push_back(std::move(event));
    Pump(request, now);
    SetTimer(request);
    return;
  }
  switch (event.event_case()) {
    case v1::DecodeEvent::kPromised:
      if (request.colocated) OnBegun(request, now);
      OnPromised(request, now);
      break;
    case v1::DecodeEvent::kPromptTokens:
      if (!request.colocated) {
        LegFailed(leg,
                  absl::DataLossError("the decode worker sent logprobs of a prompt that it did not "
                                      "compute"),
                  false, now);
        return;
      }
      OnPromptTokens(request, leg, std::move(*event.mutable_prompt_tokens()), now);
      break;
    case v1::DecodeEvent::kTokens:
      if (request.colocated && !request.handed_over && !OnFirstColocated(request, leg, now)) return;
      OnPromised(request, now);
      if (leg.request != 0) OnTokens(request, leg, std::move(*event.mutable_tokens()), now);
      break;
    case v1::DecodeEvent::kFinished: {
      const v1::DecodeFinished& finished = event.finished();
      AnswerEnd end{.reason = finished.reason()};
      if (finished.has_stop_token_id()) end.stop_token = finished.stop_token_id();
      const std::vector<TokenId>& tokens = request.answer.tokens();
      absl::Status status;
      if (tokens.size() <= request.base || end.reason == v1::FINISH_REASON_UNSPECIFIED) {
        status = absl::DataLossError("the decode worker ended an answer without a token or reason");
      } else {
        status = request.answer.CheckEnd(end, tokens.back(), tokens.size(),
                                         request.checked.sampling.max_tokens);
      }
      if (!status.ok()) {
        LegFailed(leg, std::move(status), false, now);
        return;
      }
      FinishOk(request, end, &finished, now);
      return;
    }
    case v1::DecodeEvent::kOutgrown:
      OnOutgrown(request, leg, now);
      return;
    case v1::DecodeEvent::EVENT_NOT_SET:
      LegFailed(leg, absl::DataLossError("the decode worker sent an unknown event"), false, now);
      return;
  }
  if (request.stage != Request::Stage::kFinished) SetTimer(request);
}

void RouterCore::Parts::OnPromised(Request& request, absl::Time now) {
  if (request.promised) return;
  request.promised = true;
  request.room_since.reset();
  request.room_waited = absl::ZeroDuration();
  request.room_retry = absl::InfiniteFuture();
  request.refused_by.clear();
  if (waiting_room.erase(request.key) > 0) {
    dispatch_due = true;
    RoomFreed(now);  // where one found room, the next may
  }
  if (!request.held_first) return;
  v1::Token first = std::move(*request.held_first);
  request.held_first.reset();
  if (TakeToken(request, request.prefill_leg, std::move(first), now)) Pump(request, now);
}

void RouterCore::Parts::OnTokens(Request& request, Leg& leg, v1::Tokens tokens, absl::Time now) {
  if (!request.handed_over) {
    request.handed_over = true;
    request.first_decode_at = now;
  }
  const LegKey key = leg.key;
  for (v1::Token& token : *tokens.mutable_tokens()) {
    if (!TakeToken(request, key, std::move(token), now)) return;
  }
  Pump(request, now);
}

// No failure: the KV of longer sequences is computed another way. Counts against no limit, avoids
// nobody, and comes at most once per doubling of the sequence.
void RouterCore::Parts::OnOutgrown(Request& request, Leg& leg, absl::Time now) {
  if (request.answer.tokens().size() <= request.base) {
    LegFailed(leg, absl::DataLossError("the decode worker outgrew its KV without a token"), false,
              now);
    return;
  }
  const size_t tokens = request.checked.prompt.size() + request.answer.tokens().size();
  if (!EndTry(request,
              absl::FailedPreconditionError(
                  absl::StrCat("KV of ", tokens, " tokens was to be computed anew")),
              now)) {
    return;
  }
  ++counters.outgrown;
  Log(Severity::kDebug, "outgrown", {{kRequestId, request.checked.request_id}, {"tokens", tokens}});
  BackToPrefill(request, now, now);
}

bool RouterCore::Parts::TakeToken(Request& request, LegKey key, v1::Token token, absl::Time now) {
  const TokenId id = token.token_id();
  const uint32_t position = token.position();
  const AnswerSoFar::Took took =
      request.answer.Take(std::move(token), request.checked.sampling.max_tokens);
  switch (took) {
    case AnswerSoFar::Took::kNew:
      metrics->generated_tokens.Add();
      return true;
    case AnswerSoFar::Took::kKnown:
      return true;
    case AnswerSoFar::Took::kStopped:
      metrics->generated_tokens.Add();
      FinishOk(request, {v1::FINISH_REASON_STOP, std::nullopt, request.answer.matched_stop()},
               nullptr, now);
      return false;
    case AnswerSoFar::Took::kDiverged:
      ++counters.diverged;
      ++counters.data_loss;
      FinishError(request,
                  absl::DataLossError(absl::StrCat(
                      "position ", position, " was shown with token ",
                      request.answer.tokens()[position - request.checked.prompt.size()],
                      " and came again with token ", id, " (prefill ", request.prefill_address,
                      ", decode ", request.decode_address, ")")),
                  now);
      return false;
    case AnswerSoFar::Took::kInvalid:
    case AnswerSoFar::Took::kPastEnd:
    case AnswerSoFar::Took::kTooEarly: {
      std::string why;
      if (took == AnswerSoFar::Took::kPastEnd) {
        why = absl::StrCat("the answer was complete with ", request.answer.tokens().size(),
                           " tokens");
      } else if (took == AnswerSoFar::Took::kTooEarly) {
        why = absl::StrCat("it ends the answer, whose min_tokens is ",
                           request.checked.sampling.min_tokens);
      } else {
        why = absl::StrCat("expected one below ", options.vocab, " at position ",
                           request.answer.next_position());
      }
      absl::Status status = absl::DataLossError(absl::StrCat(
          "token ", id, " at position ", position, " is none that can stand there; ", why));
      if (Leg* leg = FindLeg(key); leg != nullptr && leg->request != 0) {
        LegFailed(*leg, std::move(status), false, now);
      } else {
        Restart(request, std::move(status), now);
      }
      return false;
    }
  }
  return false;
}

void RouterCore::Parts::CloseLeg(Leg& leg, bool cancel, absl::Time now) {
  Request& request = requests.at(leg.request);
  (leg.prefill ? request.prefill_leg : request.decode_leg) = 0;
  if (!leg.prefill) request.early.clear();
  leg.request = 0;
  PromptDone(leg);
  if (Worker* worker = workers.Find(leg.worker)) {
    --worker->legs;
    if (worker->legs == 0 && worker->attach == 0) forget_at = std::min(forget_at, now);
  }
  dispatch_due = true;
  if (cancel) actions.push_back(CancelLeg{leg.key});
  if (!leg.prefill) RoomFreed(now);
}

void RouterCore::Parts::CloseLegs(Request& request, absl::Time now) {
  for (const LegKey key : {request.prefill_leg, request.decode_leg}) {
    if (Leg* leg = key == 0 ? nullptr : FindLeg(key)) CloseLeg(*leg, true, now);
  }
  if (waiting_room.erase(request.key) > 0) {
    dispatch_due = true;
    RoomFreed(now);
  }
  if (request.room_since) request.room_waited = now - *request.room_since;
  request.room_since.reset();
}

void RouterCore::Parts::RoomFreed(absl::Time now) {
  for (const RequestKey key : waiting_room) {
    Request& request = requests.at(key);
    if (request.decode_leg != 0 || !request.room_since) continue;
    request.room_retry = now;
    SetTimer(request);
    return;
  }
}

void RouterCore::Parts::LegFailed(Leg& leg, absl::Status status, bool ended, absl::Time now) {
  Request& request = requests.at(leg.request);
  const bool prefill = leg.prefill;
  const WorkerKey worker = leg.worker;
  CloseLeg(leg, !ended, now);
  if (status.code() == absl::StatusCode::kDataLoss) ++counters.data_loss;
  if (prefill) {
    PrefillFailed(request, worker, std::move(status), now);
  } else {
    DecodeFailed(request, worker, std::move(status), now);
  }
  if (request.stage != Request::Stage::kFinished) SetTimer(request);
}

void RouterCore::Parts::PrefillFailed(Request& request, WorkerKey worker, absl::Status status,
                                      absl::Time now) {
  // The lease has done its work: decode holds the KV, or says itself that it does not.
  if (request.handed_over) return;
  if (status.ok()) {
    if (request.decode_leg != 0 && !request.awaits_scores()) return;
    status = absl::UnavailableError("the stream ended before the hand-over");
  }
  status = WithContext(status, absl::StrCat("prefill on ", request.prefill_address));
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    FinishError(request, std::move(status), now);
    return;
  }
  if (status.code() == absl::StatusCode::kResourceExhausted && !request.ticket) {
    ++counters.prefill_refused;
    PromptRefused(request, worker, std::move(status), now);
    return;
  }
  request.avoid_prefill = worker;
  Restart(request, std::move(status), now);
}

// Its queue is full: another worker, or the same a little later.
void RouterCore::Parts::PromptRefused(Request& request, WorkerKey worker, absl::Status status,
                                      absl::Time now) {
  if (Worker* full = workers.Find(worker)) full->full_until = now + kFullPause;
  request.last_failure = std::move(status);
  if (!request.refused_since) request.refused_since = now;
  request.colocated = false;
  Enqueue(request, true, now);
}

void RouterCore::Parts::DecodeFailed(Request& request, WorkerKey worker, absl::Status status,
                                     absl::Time now) {
  if (status.ok()) status = absl::UnavailableError("the stream ended before the answer did");
  status = WithContext(status, absl::StrCat("decode on ", request.decode_address));
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    FinishError(request, std::move(status), now);
    return;
  }
  if (status.code() == absl::StatusCode::kResourceExhausted && request.colocated &&
      !request.promised) {
    ++counters.decode_refused;
    PromptRefused(request, worker, std::move(status), now);
    return;
  }
  if (status.code() == absl::StatusCode::kResourceExhausted && !request.handed_over &&
      request.prefill_leg != 0) {
    ++counters.decode_refused;
    request.promised = false;
    request.refused_by.push_back(worker);
    TryDecode(request, now);
    return;
  }
  request.avoid_decode = worker;
  request.avoid_prefill = request.prefill_worker;
  Restart(request, std::move(status), now, true);
}

void RouterCore::Parts::Restart(Request& request, absl::Status status, absl::Time now,
                                bool lost_decode) {
  const absl::string_view phase = PhaseOf(request, lost_decode);
  if (!EndTry(request, status, now)) return;
  ++counters.migrations;
  if (++request.migrations > options.max_migrations) {
    FinishError(
        request,
        absl::UnavailableError(absl::StrCat("gave up after ", options.max_migrations,
                                            " tries elsewhere; the last one: ", status.message())),
        now);
    return;
  }
  Log(Severity::kInfo, "back_to_prefill",
      {{kRequestId, request.checked.request_id},
       {"phase", phase},
       {"tokens", request.answer.tokens().size()},
       {"migrations", request.migrations},
       {"because", status.ToString()}});
  request.last_failure = std::move(status);
  BackToPrefill(request, now + PauseBefore(request.migrations), now);
}

// False when the request ended with its try.
bool RouterCore::Parts::EndTry(Request& request, const absl::Status& why, absl::Time now) {
  CloseLegs(request, now);
  AccountBrokenTry(request, now);
  // Everything may have been shown already, with only the last word missing.
  if (const auto complete = request.answer.Complete(request.checked.sampling.max_tokens)) {
    FinishOk(request, *complete, nullptr, now);
    return false;
  }
  if (now >= request.checked.deadline) {
    FinishError(request, absl::DeadlineExceededError(why.message()), now);
    return false;
  }
  return true;
}

void RouterCore::Parts::BackToPrefill(Request& request, absl::Time not_before, absl::Time now) {
  request.ticket.reset();
  request.held_first.reset();  // never shown: the next try draws it again
  request.colocated = false;
  request.promised = false;
  request.handed_over = false;
  request.refused_by.clear();
  request.partnerless_since.reset();
  request.refused_since.reset();
  request.enqueued = now;
  request.not_before = not_before;
  Enqueue(request, false, now);
}

}  // namespace baton
