#include "router/core/attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "router/core/clients.h"
#include "router/core/membership.h"
#include "router/core/request_queue.h"

namespace baton {
namespace {

constexpr absl::Duration kFirstRoomPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestRoomPause = absl::Milliseconds(320);
// Max time for a worker to take the message that it has to forget cached KV.
constexpr absl::Duration kForgetLimit = absl::Seconds(10);
// Max workers that may find a request invalid before another one is asked.
constexpr int kMaxInvalid = 2;
// Max time that a request may wait at a worker, as a multiple of leg_silence_limit.
constexpr int kLongestWait = 3;
// Time after the worker's queue is empty in which a request's next event may still come.
constexpr absl::Duration kAfterQueue = absl::Seconds(5);

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

// Fills in the fields that prefill and decode requests share: the prompt, the first `generated`
// tokens of the answer, and the sampling options. Asks for logprobs of the prompt only if the
// worker computes the prompt and some of these logprobs are still missing.
template <class Proto>
void Describe(const Request& request, size_t generated, bool computes_prompt, Proto* proto) {
  const std::vector<TokenId>& answer = request.answer.tokens();
  proto->set_request_id(request.checked.request_id);
  auto* ids = proto->mutable_token_ids();
  ids->Add(request.checked.prompt.begin(), request.checked.prompt.end());
  ids->Add(answer.begin(), answer.begin() + static_cast<ptrdiff_t>(generated));
  proto->set_original_prompt_tokens(static_cast<uint32_t>(request.checked.prompt.size()));
  *proto->mutable_sampling() = SamplingToProto(request.checked.sampling);
  proto->mutable_sampling()->set_max_tokens(static_cast<uint32_t>(request.max_tokens));
  if (!computes_prompt || !request.awaits_scores()) {
    proto->mutable_sampling()->clear_prompt_logprobs();
  }
  proto->set_answer_index(request.answer_index);
  proto->set_caller(request.caller->id);
  proto->mutable_cache()->set_salt(request.checked.cache_salt);
  if (!request.checked.prefix_cache) {
    proto->mutable_cache()->set_use(v1::CACHE_USE_OFF);
  } else if (request.refresh_cache) {
    proto->mutable_cache()->set_use(v1::CACHE_USE_REFRESH);
  }
}

Attempt::End EndsWith(AttemptEnd::Kind kind, absl::Status status) {
  return std::make_unique<AttemptEnd>(AttemptEnd{.kind = kind, .status = std::move(status)});
}
Attempt::End Answered(AnswerEnd answer) {
  Attempt::End end = EndsWith(AttemptEnd::Kind::kAnswered, absl::OkStatus());
  end->answer = std::move(answer);
  return end;
}

}  // namespace

Attempt::Attempt(const AttemptTools& tools, Request* request, const Placement& place)
    : core_(tools.core),
      membership_(tools.membership),
      workers_(membership_.workers()),
      legs_(tools.legs),
      clients_(tools.clients),
      request_(*request),
      colocated_(place.colocated),
      base_(request->disputed.value_or(request->answer.tokens().size())),
      prefill_worker_(place.colocated ? 0 : place.worker->name.key),
      times_{.queued = request->queue.since, .colocated = place.colocated} {
  Worker& worker = *place.worker;
  RequestSummary& summary = request_.summary;
  summary.prefill_address = worker.name.address;
  const size_t tokens = request_.checked.prompt.size() + base_;
  uncached_tokens_ = tokens - std::min<uint64_t>(place.cached_tokens, tokens);
  const double answer =
      core_.forecast.AnswerTokens(request_.max_tokens) - static_cast<double>(base_);
  core_.callers.Began(request_, uncached_tokens_ + static_cast<uint64_t>(std::max(1.0, answer)));
  clients_.NoteWorker(request_, colocated_ ? LegKind::kColocated : LegKind::kPrefill,
                      worker.name.key);
  if (colocated_) {
    summary.link.clear();
    summary.mode = ServingMode::kColocated;
    ++core_.counters.colocated;
    core_.actions.push_back(OpenDecode({&worker, place.cached_tokens}, tokens));
    return;
  }
  summary.mode = ServingMode::kDisaggregated;
  request_.decode_attempts = 0;
  prefill_leg_ = &legs_.Open(&request_, worker, /*prefill=*/true, tokens, place.cached_tokens);
  prefill_key_ = prefill_leg_->key;
  StartPrefill start{
      .leg = prefill_leg_->key, .worker = worker.name, .deadline = request_.checked.deadline};
  Describe(request_, base_, /*computes_prompt=*/true, &start.request);
  start.request.set_attempt(request_.prefill_attempts++);
  start.request.set_worker_epoch(worker.name.epoch);
  if (request_.checked.slo.ttft && !summary.shown) {
    const absl::Time due = request_.checked.arrival + *request_.checked.slo.ttft;
    start.request.set_first_token_due_us(Micros(due - core_.now));
  }
  core_.actions.push_back(std::move(start));
}

StartDecode Attempt::OpenDecode(const ChosenWorker& chosen, uint64_t prompt_tokens) {
  Worker& worker = *chosen.worker;
  decode_worker_ = worker.name.key;
  request_.summary.decode_address = worker.name.address;
  decode_leg_ =
      &legs_.Open(&request_, worker, /*prefill=*/false, prompt_tokens, chosen.cached_tokens);
  StartDecode start{
      .leg = decode_leg_->key, .worker = worker.name, .deadline = request_.checked.deadline};
  Describe(request_, base_, /*computes_prompt=*/colocated_, &start.request);
  start.request.set_attempt(request_.decode_attempts++);
  start.request.set_worker_epoch(worker.name.epoch);
  return start;
}

Attempt::End Attempt::TryDecode() {
  Worker* prefill = workers_.Find(prefill_worker_);
  BATON_CHECK(prefill != nullptr && ticket_ && prefill_leg_ != nullptr)
      << "request " << request_.key << " has no ticket to decode";
  int partners = 0;
  const ChosenWorker chosen = workers_.ChooseDecode(*prefill, membership_.NeedOf(request_),
                                                    room_.refused_by, core_.now, &partners);
  if (chosen.worker != nullptr) {
    clients_.NoteWorker(request_, LegKind::kDecode, chosen.worker->name.key);
    room_.partnerless_since.reset();
    room_.retry = absl::InfiniteFuture();
    request_.summary.link = WorkerTable::LinkName(*chosen.worker, prefill->name.epoch);
    StartDecode start = OpenDecode(chosen, 0);
    *start.request.mutable_ticket() = *ticket_;
    core_.actions.push_back(std::move(start));
    return nullptr;
  }
  if (!room_.since) {
    room_.since = core_.now - request_.room_waited;
    room_.pause = kFirstRoomPause;
  }
  if (partners > 0) {
    room_.partnerless_since.reset();
  } else if (!room_.partnerless_since) {
    room_.partnerless_since = core_.now;
  } else if (core_.now - *room_.partnerless_since >= core_.options.report_limit) {
    // The next attempt avoids this prefill worker: a decode worker may be able to pull from another
    // one.
    request_.NoteFailedBy(prefill_worker_);
    return Broken(nullptr, absl::UnavailableError(absl::StrCat("no decode worker can pull from ",
                                                               request_.summary.prefill_address)));
  }
  legs_.WaitForRoom(&request_);
  room_.refused_by.clear();
  room_.retry = core_.now + room_.pause;
  room_.pause = std::min(room_.pause * 2, kLongestRoomPause);
  return nullptr;
}

Attempt::End Attempt::OnPrefill(v1::PrefillEvent event) {
  Leg& leg = *prefill_leg_;
  leg.heard = core_.now;
  switch (event.event_case()) {
    case v1::PrefillEvent::kTicket:
      if (ticket_) return Lied(leg, "the prefill worker sent two tickets");
      if (End end = OnCached(leg, event.cached_tokens())) return end;
      ticket_ = std::move(*event.mutable_ticket());
      times_.begun = core_.now;
      request_.queue.refused_since.reset();
      return TryDecode();
    case v1::PrefillEvent::kFirstToken:
      return OnFirstToken(event.first_token());
    case v1::PrefillEvent::kPromptTokens:
      return OnPromptTokens(leg, std::move(*event.mutable_prompt_tokens()));
    case v1::PrefillEvent::EVENT_NOT_SET:
      break;
  }
  return Lied(leg, "the prefill worker sent an unknown event");
}

Attempt::End Attempt::OnDecode(v1::DecodeEvent event) {
  Leg& leg = *decode_leg_;
  leg.heard = core_.now;
  if (!colocated_ && request_.awaits_scores() && !event.has_reserved()) {
    early_.push_back(std::move(event));
    FlushClient();
    return nullptr;
  }
  switch (event.event_case()) {
    case v1::DecodeEvent::kReserved:
      if (End end = OnCached(leg, event.reserved().cached_tokens())) return end;
      if (colocated_) OnBegun();
      return OnReserved();
    case v1::DecodeEvent::kPromptTokens:
      if (colocated_) return OnPromptTokens(leg, std::move(*event.mutable_prompt_tokens()));
      return Lied(leg, "the decode worker sent logprobs of a prompt that it did not compute");
    case v1::DecodeEvent::kTokens:
      if (colocated_ && !handed_over_) {
        if (End end = OnFirstColocated()) return end;
      }
      if (End end = OnReserved()) return end;
      return OnTokens(std::move(*event.mutable_tokens()));
    case v1::DecodeEvent::kFinished:
      return OnFinished(std::move(*event.mutable_finished()));
    case v1::DecodeEvent::kOutgrown:
      return OnOutgrown();
    case v1::DecodeEvent::EVENT_NOT_SET:
      break;
  }
  return Lied(leg, "the decode worker sent an unknown event");
}

// Takes logprobs of the prompt. For tokens whose logprob came in an earlier attempt, only the id
// and position are checked.
Attempt::End Attempt::OnPromptTokens(Leg& leg, v1::PromptTokens tokens) {
  const std::vector<TokenId>& prompt = request_.checked.prompt;
  const bool wanted = request_.wants_scores();
  for (v1::Token& token : *tokens.mutable_tokens()) {
    const size_t position = scored_;
    const bool fits = wanted && position < prompt.size() && token.position() == position &&
                      token.token_id() == prompt[position] && token.has_logprob() == (position > 0);
    if (!fits) {
      return Lied(leg, "the logprob of token ", token.token_id(), " at position ", token.position(),
                  " of the prompt was not expected; ", position, " of ", prompt.size(),
                  " had arrived");
    }
    ++scored_;
    if (position < request_.prompt_scored) continue;
    ++request_.prompt_scored;
    request_.client.unsent_scores.push_back(std::move(token));
  }
  FlushClient();
  if (request_.awaits_scores()) return nullptr;
  for (v1::DecodeEvent& event : std::exchange(early_, {})) {
    if (decode_leg_ == nullptr) return nullptr;
    if (End end = OnDecode(std::move(event))) return end;
  }
  FlushClient();
  return nullptr;
}

Attempt::End Attempt::CheckScored(Leg& leg) {
  if (!request_.awaits_scores()) return nullptr;
  return Lied(leg, "the ", leg.prefill ? "prefill" : "decode",
              " worker sent the first token after the logprobs of only ", request_.prompt_scored,
              " of ", request_.checked.prompt.size(), " prompt tokens");
}

Attempt::End Attempt::OnFirstToken(const v1::FirstToken& first) {
  Leg& leg = *prefill_leg_;
  if (End end = CheckScored(leg)) return end;
  if (times_.first_token) return Lied(leg, "the prefill worker sent two first tokens");
  PromptDone(leg);
  times_.first_token = core_.now;
  PhaseMicros& timing = request_.summary.timing;
  timing.queue_us += Micros(leg.started - times_.queued) + first.queue_us();
  timing.prefill_us += first.prefill_us();
  const size_t position = request_.checked.prompt.size() + base_;
  if (first.token().position() != position) {
    return Lied(leg, "the first token has position ", first.token().position(), ", not ", position);
  }
  AnswerEnd end{.reason = first.finish_reason()};
  if (end.reason == v1::FINISH_REASON_STOP) end.stop_token = first.token().token_id();
  if (const absl::Status status =
          request_.answer.CheckEnd(end, first.token().token_id(), base_ + 1, request_.max_tokens);
      !status.ok()) {
    return LiedWith(leg, WithContext(status, "the first token"));
  }
  if (end.reason == v1::FINISH_REASON_UNSPECIFIED && !reserved_) {
    held_first_ = first.token();
    return nullptr;
  }
  if (End taken = TakeToken(&leg, first.token())) return taken;
  if (end.reason == v1::FINISH_REASON_UNSPECIFIED) {
    FlushClient();
    return nullptr;
  }
  // The answer ends with the first token of this attempt, so this attempt has no use for a decode
  // worker. If earlier attempts gave no token either, the summary names no decode worker.
  if (base_ == 0) {
    request_.summary.decode_address.clear();
    request_.summary.link.clear();
  }
  return Answered(std::move(end));
}

// Notes the number of tokens that a worker found in its prefix cache.
Attempt::End Attempt::OnCached(Leg& leg, uint32_t tokens) {
  const size_t prompt = request_.checked.prompt.size();
  if (tokens >= prompt + base_) {
    return Lied(leg, "the ", leg.prefill ? "prefill" : "decode", " worker found ", tokens, " of ",
                prompt + base_, " tokens in its cache, and always computes the last one");
  }
  RequestSummary& summary = request_.summary;
  if (!leg.prefill) summary.decode_cached_tokens = tokens;
  if (leg.prefill || colocated_) uncached_tokens_ = prompt + base_ - tokens;
  // A later attempt finds the KV of the earlier ones.
  if (base_ == 0 && (leg.prefill || colocated_)) summary.cached_tokens = tokens;
  return nullptr;
}

void Attempt::OnBegun() {
  if (times_.begun) return;
  times_.begun = core_.now;
  request_.queue.refused_since.reset();
  AddQueueAndPrefill(&request_.summary.timing, core_.now - times_.queued, absl::ZeroDuration());
}

Attempt::End Attempt::OnFirstColocated() {
  if (End end = CheckScored(*decode_leg_)) return end;
  OnBegun();
  PromptDone(*decode_leg_);
  times_.first_token = core_.now;
  AddQueueAndPrefill(&request_.summary.timing, absl::ZeroDuration(), core_.now - *times_.begun);
  return nullptr;
}

void Attempt::PromptDone(Leg& leg) {
  core_.forecast.PromptDone(leg.prompt_tokens, uncached_tokens_, core_.now - leg.started,
                            core_.now);
  core_.callers.Charge(request_, uncached_tokens_);
  legs_.PromptDone(leg);
}

Attempt::End Attempt::OnReserved() {
  if (reserved_) return nullptr;
  reserved_ = true;
  if (!colocated_) legs_.NoteKept(*decode_leg_);
  room_ = {};
  request_.room_waited = absl::ZeroDuration();
  legs_.StopWaiting(&request_);
  if (!held_first_) return nullptr;
  v1::Token first = std::move(*held_first_);
  held_first_.reset();
  if (End end = TakeToken(prefill_leg_, std::move(first))) return end;
  FlushClient();
  return nullptr;
}

Attempt::End Attempt::OnTokens(v1::Tokens tokens) {
  if (!handed_over_) {
    // A worker that pulled the KV repeats the first token, so that this shows if it counts wrong.
    const size_t first = request_.checked.prompt.size() + base_;
    if (tokens.tokens_size() == 0 || tokens.tokens(0).position() != first) {
      return Lied(*decode_leg_, "the decode worker did not begin with the token at position ",
                  first);
    }
    handed_over_ = true;
    core_.forecast.Generating(1, core_.now);
    times_.first_decode = core_.now;
  }
  for (v1::Token& token : *tokens.mutable_tokens()) {
    if (End end = TakeToken(decode_leg_, std::move(token))) return end;
  }
  FlushClient();
  return nullptr;
}

Attempt::End Attempt::OnFinished(v1::DecodeFinished finished) {
  AnswerEnd end{.reason = finished.reason()};
  if (finished.has_stop_token_id()) end.stop_token = finished.stop_token_id();
  const std::vector<TokenId>& tokens = request_.answer.tokens();
  if (!handed_over_ || request_.disputed || end.reason == v1::FINISH_REASON_UNSPECIFIED) {
    return Lied(*decode_leg_, "the decode worker ended the answer without a token or a reason");
  }
  if (absl::Status status =
          request_.answer.CheckEnd(end, tokens.back(), tokens.size(), request_.max_tokens);
      !status.ok()) {
    return LiedWith(*decode_leg_, std::move(status));
  }
  finished_ = std::move(finished);
  return Answered(std::move(end));
}

// Handles a sequence that has become too long for the rotary table of its KV. For one sequence,
// this happens at most once each time its length doubles.
Attempt::End Attempt::OnOutgrown() {
  if (!handed_over_ || request_.disputed) {
    return Lied(
        *decode_leg_,
        "the decode worker reported the end of its rotary table without having sent a token");
  }
  const size_t tokens = request_.checked.prompt.size() + request_.answer.tokens().size();
  // Each table reaches at least twice as far as the one before.
  if (request_.outgrown_at > 0 && tokens < 2 * request_.outgrown_at - 1) {
    return Lied(*decode_leg_, "the decode worker reported the end of its rotary table at ", tokens,
                " tokens, and an earlier one ended at ", request_.outgrown_at);
  }
  request_.outgrown_at = tokens;
  return EndsWith(AttemptEnd::Kind::kOutgrown, absl::FailedPreconditionError(absl::StrCat(
                                                   "the rotary table ends at ", tokens,
                                                   " tokens; the KV has to be computed again")));
}

Attempt::End Attempt::TakeToken(Leg* leg, v1::Token token) {
  const TokenId id = token.token_id();
  const uint32_t position = token.position();
  AnswerSoFar& answer = request_.answer;
  std::string why;
  switch (answer.Take(std::move(token), request_.max_tokens)) {
    case AnswerSoFar::Took::kNew:
      CountToken();
      return nullptr;
    case AnswerSoFar::Took::kKnown:
      if (position == request_.checked.prompt.size() + request_.disputed.value_or(SIZE_MAX)) {
        request_.disputed.reset();
      }
      return nullptr;
    case AnswerSoFar::Took::kStopped:
      CountToken();
      return Answered({v1::FINISH_REASON_STOP, std::nullopt, answer.matched_stop()});
    case AnswerSoFar::Took::kDiverged:
      return Diverged(leg, position - request_.checked.prompt.size(), id);
    case AnswerSoFar::Took::kPastEnd:
      why =
          absl::StrCat("the answer was already complete with ", answer.tokens().size(), " tokens");
      break;
    case AnswerSoFar::Took::kTooEarly:
      why = absl::StrCat("it would end the answer before min_tokens, ",
                         request_.checked.sampling.min_tokens);
      break;
    case AnswerSoFar::Took::kInvalid:
      why = absl::StrCat("expected a token id below ", core_.options.vocab, " and position ",
                         answer.next_position());
      break;
  }
  absl::Status status = absl::DataLossError(
      absl::StrCat("token ", id, " at position ", position, " is not possible: ", why));
  if (leg != nullptr) return LiedWith(*leg, std::move(status));
  lied_ = true;
  ++core_.counters.data_loss;
  request_.NoteFailedBy(prefill_worker_);
  return BrokenByPrefill(std::move(status));
}

Attempt::End Attempt::Diverged(const Leg* leg, size_t index, TokenId id) {
  ++core_.counters.data_loss;
  absl::Status status = absl::DataLossError(absl::StrCat(
      "position ", request_.checked.prompt.size() + index, " has token ",
      request_.answer.tokens()[index], ", and a worker sent token ", id, " for it (prefill ",
      request_.summary.prefill_address, ", decode ", request_.summary.decode_address, ")"));
  if (request_.disputed) {
    ++core_.counters.diverged;
    return EndsWith(AttemptEnd::Kind::kFailed, std::move(status));
  }
  request_.disputed = index;
  request_.NoteFailedBy(prefill_worker_);
  request_.NoteFailedBy(decode_worker_);
  return leg != nullptr ? Broken(leg, std::move(status)) : BrokenByPrefill(std::move(status));
}

void Attempt::CountToken() {
  core_.metrics->generated_tokens.Add();
  core_.forecast.TokenDone(core_.now);
  core_.callers.Charge(request_, 1);
}

Attempt::End Attempt::LegFailed(Leg& leg, absl::Status status, bool ended) {
  CloseLeg(leg, !ended);
  // Another process answers at the worker's address (CheckWorkerEpoch). Unless the worker reports
  // again, it counts as dead.
  if (Worker* worker = workers_.Find(leg.worker); worker != nullptr && absl::IsAborted(status)) {
    worker->reported = absl::InfinitePast();
    worker->doubted = true;
  }
  if (status.code() == absl::StatusCode::kDataLoss) ++core_.counters.data_loss;
  // The decode worker has sent tokens, so it holds the KV. If it loses the KV, it reports this
  // itself. So the end of the Prefill RPC or of the lease changes nothing.
  if (leg.prefill && handed_over_) return nullptr;
  if (status.ok()) {
    if (leg.prefill && decode_leg_ != nullptr && !request_.awaits_scores()) return nullptr;
    status = absl::UnavailableError(
        leg.prefill ? "the worker ended its stream before the hand-over"
                    : "the worker ended its stream before the answer was complete");
  }
  const RequestSummary& summary = request_.summary;
  status = WithContext(status, leg.prefill ? absl::StrCat("prefill on ", summary.prefill_address)
                                           : absl::StrCat("decode on ", summary.decode_address));
  if (absl::IsInvalidArgument(status)) {
    // The router has checked the request. If a worker finds it invalid, others are asked.
    if (++request_.invalid > kMaxInvalid) {
      return EndsWith(AttemptEnd::Kind::kFailed, std::move(status));
    }
    request_.invalid_by.emplace_back(leg.worker, leg.key);
    // It may have been the ticket.
    if (!leg.prefill && !colocated_) request_.invalid_by.emplace_back(prefill_worker_, 0);
  }
  return leg.prefill ? PrefillFailed(leg, std::move(status)) : DecodeFailed(leg, std::move(status));
}

Attempt::End Attempt::PrefillFailed(const Leg& leg, absl::Status status) {
  if (status.code() == absl::StatusCode::kResourceExhausted && !ticket_) {
    ++core_.counters.prefill_refused;
    return Refused(leg.worker, std::move(status));
  }
  // The lease on the KV begins before the first token is sent.
  if (absl::IsFailedPrecondition(status) && decode_leg_ != nullptr && times_.first_token) {
    // The lease on the KV ran out: the decode worker took the ticket, and did not read in time.
    request_.NoteFailedBy(decode_worker_);
    request_.NoteFailedBy(leg.worker);
    return Broken(decode_leg_, absl::UnavailableError(absl::StrCat(
                                   "decode on ", request_.summary.decode_address,
                                   " did not read the KV in time: ", status.message())));
  }
  request_.NoteFailedBy(leg.worker);
  return Broken(&leg, std::move(status));
}

Attempt::End Attempt::DecodeFailed(const Leg& leg, absl::Status status) {
  const WorkerKey worker = leg.worker;
  const bool full = status.code() == absl::StatusCode::kResourceExhausted;
  if (full && colocated_ && !reserved_) {
    ++core_.counters.decode_refused;
    return Refused(worker, std::move(status));
  }
  if (full && !handed_over_ && prefill_leg_ != nullptr) {
    ++core_.counters.decode_refused;
    reserved_ = false;
    room_.refused_by.push_back(worker);
    return TryDecode();
  }
  request_.NoteFailedBy(worker);
  request_.NoteFailedBy(prefill_worker_);
  return Broken(&leg, std::move(status), /*lost_decode=*/true);
}

Attempt::End Attempt::BrokenByPrefill(absl::Status status) const {
  End end = Broken(
      nullptr, WithContext(status, absl::StrCat("prefill on ", request_.summary.prefill_address)));
  end->leg = prefill_key_;
  end->worker = prefill_worker_;
  return end;
}

Attempt::End Attempt::Refused(WorkerKey worker, absl::Status status) {
  if (Worker* full = workers_.Find(worker)) {
    full->full_until = core_.now + kFullPause;
  }
  return EndsWith(AttemptEnd::Kind::kRefused, std::move(status));
}

Attempt::End Attempt::Broken(const Leg* leg, absl::Status status, bool lost_decode) const {
  absl::string_view phase = ticket_ ? "prefill" : "queue";
  if (lost_decode || times_.first_token) phase = "pull";
  if (colocated_) phase = reserved_ ? "prefill" : "queue";
  if (handed_over_) phase = "decode";
  End end = EndsWith(AttemptEnd::Kind::kBroken, std::move(status));
  end->phase = phase;
  end->lied = lied_;
  end->in_transit = ticket_ && !handed_over_ && leg != nullptr &&
                    (leg->prefill ? times_.first_token.has_value() : reserved_);
  if (leg != nullptr) {
    end->leg = leg->key;
    end->worker = leg->worker;
    if (end->in_transit) end->partner = leg->prefill ? decode_worker_ : prefill_worker_;
  }
  return end;
}

Attempt::End Attempt::CheckTimers() {
  const RouterCoreOptions& options = core_.options;
  for (Leg* leg : {prefill_leg_, decode_leg_}) {
    if (leg == nullptr || leg->request == nullptr || leg->paused) continue;
    const Worker* worker = workers_.Find(leg->worker);
    if (core_.now >= TooSilentAt(*leg)) {
      absl::Status silent = absl::UnavailableError(
          absl::StrCat("worker ", worker == nullptr ? "" : worker->name.address,
                       " reports its load, but sent nothing for this request for ",
                       absl::FormatDuration(core_.now - leg->heard)));
      if (End end = LegFailed(*leg, std::move(silent), false)) return end;
      continue;
    }
    if (core_.now < leg->heard + options.stall_limit ||
        (worker != nullptr && !workers_.Stale(*worker, core_.now))) {
      continue;
    }
    if (End end = LegFailed(*leg,
                            absl::UnavailableError(absl::StrCat(
                                "worker ", worker == nullptr ? "" : worker->name.address,
                                " was silent for ", absl::FormatDuration(core_.now - leg->heard))),
                            false)) {
      return end;
    }
  }
  if (room_.since && core_.now >= *room_.since + options.room_wait) {
    return EndsWith(AttemptEnd::Kind::kFailed,
                    absl::ResourceExhaustedError(absl::StrCat(
                        "no decode worker had room for ", membership_.NeedOf(request_).tokens,
                        " tokens in ", absl::FormatDuration(core_.now - *room_.since))));
  }
  if (!room_.since || core_.now < room_.retry) return nullptr;
  room_.retry = absl::InfiniteFuture();
  return TryDecode();
}

absl::Time Attempt::WakeAt() const {
  const RouterCoreOptions& options = core_.options;
  absl::Time wake = absl::InfiniteFuture();
  if (room_.since) wake = std::min(room_.retry, *room_.since + options.room_wait);
  for (const Leg* leg : {prefill_leg_, decode_leg_}) {
    if (leg == nullptr || leg->paused) continue;
    wake = std::min(wake, TooSilentAt(*leg));
    absl::Time check = leg->heard + options.stall_limit;
    if (const Worker* worker = workers_.Find(leg->worker)) {
      check = std::max(check, worker->reported + options.report_limit + absl::Nanoseconds(1));
    }
    wake = std::min(wake, check);
  }
  return wake;
}

std::array<std::pair<WorkerKey, LegKey>, 2> Attempt::Answering() const {
  if (!handed_over_ || decode_leg_ == nullptr) return {};
  return {std::pair(prefill_worker_, prefill_key_), std::pair(decode_worker_, decode_leg_->key)};
}

absl::Time Attempt::TooSilentAt(const Leg& leg) const {
  // A decode worker may keep a sequence waiting for a free place in its batch until it has sent the
  // first token.
  const bool decodes = !leg.prefill && handed_over_;
  const bool computes_prompt =
      leg.prefill ? ticket_ && !times_.first_token : colocated_ && reserved_ && !handed_over_;
  const Worker* worker = workers_.Find(leg.worker);
  // A worker whose queue is empty, as it reports, has no reason to let the request wait.
  // A sequence that pulls, or waits for the KV to come, counts as one that waits.
  const bool may_wait = leg.prefill ? !ticket_ : colocated_ ? !reserved_ : !handed_over_;
  const bool forgotten = may_wait && worker != nullptr && worker->load.waiting() == 0;
  const absl::Duration limit = core_.options.leg_silence_limit;
  uint64_t thousands = 1;
  if (!decodes && worker != nullptr) thousands += worker->prompt_tokens / 1000;
  const absl::Time too_silent = leg.heard + limit * static_cast<int64_t>(thousands);
  if (decodes || computes_prompt) return too_silent;
  // No request waits for so long. The worker has forgotten it, and others wait there.
  if (!forgotten) return leg.heard + kLongestWait * limit * static_cast<int64_t>(thousands);
  // The request may just have left the worker's queue, and its next event be on the way.
  return std::max(too_silent, worker->empty_since + std::min(limit, kAfterQueue));
}

void Attempt::FlushClient() {
  const bool full = clients_.Flush(request_);
  const bool pause = full || !early_.empty();
  if (decode_leg_ == nullptr || decode_leg_->paused == pause) return;
  decode_leg_->paused = pause;
  decode_leg_->heard = core_.now;
  if (pause) {
    core_.actions.push_back(PauseLeg{decode_leg_->key});
  } else {
    core_.actions.push_back(ResumeLeg{decode_leg_->key});
  }
}

void Attempt::TellWorkersToForget() {
  if (!request_.checked.prefix_cache) return;
  const auto tell = [&](WorkerKey key, bool prefill, auto start) {
    const Worker* worker = workers_.Find(key);
    if (worker == nullptr || worker->attach == 0 || !worker->registration.prefix_cache()) return;
    start.leg = legs_.OpenToForget(*worker, prefill);
    start.worker = worker->name;
    start.deadline = core_.now + kForgetLimit;
    Describe(request_, request_.answer.tokens().size(), /*computes_prompt=*/false, &start.request);
    start.request.mutable_cache()->set_use(v1::CACHE_USE_FORGET);
    start.request.set_worker_epoch(worker->name.epoch);
    core_.actions.push_back(std::move(start));
  };
  tell(prefill_worker_, /*prefill=*/true, StartPrefill());
  tell(decode_worker_, /*prefill=*/false, StartDecode());
}

void Attempt::CloseLeg(Leg& leg, bool cancel) {
  (leg.prefill ? prefill_leg_ : decode_leg_) = nullptr;
  if (!leg.prefill) early_.clear();
  // A worker that has begun with the prompt has computed some of it. How much is not known.
  if (leg.prompt_tokens > 0 && times_.begun) core_.callers.Charge(request_, uncached_tokens_);
  legs_.Close(leg, cancel);
}

void Attempt::Close() {
  for (Leg* leg : {prefill_leg_, decode_leg_}) {
    if (leg != nullptr) CloseLeg(*leg, true);
  }
  legs_.StopWaiting(&request_);
  if (!std::exchange(closed_, true)) {
    core_.callers.Ended(request_);
    if (handed_over_) core_.forecast.Generating(-1, core_.now);
  }
  if (room_.since) request_.room_waited = core_.now - *room_.since;
  room_.since.reset();
}

}  // namespace baton
