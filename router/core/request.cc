#include "router/core/request.h"

#include <algorithm>
#include <utility>

#include "router/core/attempt.h"

namespace baton {
namespace {

// Returns true if the decode worker's tokens came before the prefill worker's first token. The
// prefill worker reports its times with that token, so its times are then missing.
bool DecodeCameFirst(const AttemptTimes& attempt) {
  return !attempt.first_token && attempt.begun && attempt.first_decode;
}

}  // namespace

Request::Request(RequestKey k, std::shared_ptr<const CheckedRequest> c, int index, AnswerSoFar a)
    : key(k),
      shared(std::move(c)),
      checked(*shared),
      answer_index(static_cast<uint32_t>(index)),
      answer(std::move(a)),
      max_tokens(checked.sampling.max_tokens) {}
Request::~Request() = default;

absl::Time Request::WakeAt(const RouterCoreOptions& options) const {
  if (client.ended_at) {
    return client.aborted ? absl::InfiniteFuture() : *client.ended_at + client.leave_limit;
  }
  absl::Time wake = checked.deadline;
  if (client.slow_since) wake = std::min(wake, *client.slow_since + options.slow_client_limit);
  if (attempt) return std::min(wake, attempt->WakeAt());
  if (queue.not_before > queue.since) wake = std::min(wake, queue.not_before);
  if (queue.no_workers_since) wake = std::min(wake, *queue.no_workers_since + options.pair_wait);
  if (queue.refused_since) wake = std::min(wake, *queue.refused_since + options.room_wait);
  return std::min(wake, WaitsUntil(options));
}

absl::Time Request::WaitsUntil(const RouterCoreOptions& options) const {
  if (begun() || queue.no_workers_since) return absl::InfiniteFuture();
  return queue.since + queue.without_workers + options.max_queue_wait;
}

void RequestTimers::Update(Request& request) { Set(request, request.WakeAt(options_)); }

void RequestTimers::Set(Request& request, absl::Time wake) {
  if (wake == request.timer) return;
  set_.erase({request.timer, request.key});
  request.timer = wake;
  if (wake != absl::InfiniteFuture()) set_[{wake, request.key}] = &request;
}

Request* RequestTimers::Due(absl::Time now) const {
  return next() <= now ? set_.begin()->second : nullptr;
}

absl::Time RequestTimers::next() const {
  return set_.empty() ? absl::InfiniteFuture() : set_.begin()->first.first;
}

void AddQueueAndPrefill(PhaseMicros* timing, absl::Duration queue, absl::Duration prefill) {
  timing->queue_us += Micros(queue);
  timing->prefill_us += Micros(prefill);
}

bool RequestSummary::ShowFirst(const AttemptTimes& attempt, absl::Time arrival, absl::Time now) {
  if (std::exchange(shown, true)) return false;
  timing.ttft_us = Micros(now - arrival);
  at_first_token = timing;
  if (DecodeCameFirst(attempt)) {
    AddQueueAndPrefill(&at_first_token, *attempt.begun - attempt.queued, now - *attempt.begun);
  }
  return true;
}

void RequestSummary::AddBroken(const AttemptTimes& attempt, absl::Time now) {
  if (!attempt.first_token) {
    const absl::Time begun = attempt.begun.value_or(now);
    const bool counted = attempt.colocated && attempt.begun;
    AddQueueAndPrefill(&timing, counted ? absl::ZeroDuration() : begun - attempt.queued,
                       now - begun);
    return;
  }
  timing.handover_exposed_us += Micros(attempt.first_decode.value_or(now) - *attempt.first_token);
  if (attempt.first_decode) {
    timing.decode_us += Micros(now - *attempt.first_decode);
  }
}

void RequestSummary::AddComplete(AttemptTimes attempt,
                                 const std::optional<v1::DecodeFinished>& finished,
                                 absl::Time now) {
  if (DecodeCameFirst(attempt)) {
    AddQueueAndPrefill(&timing, *attempt.begun - attempt.queued,
                       *attempt.first_decode - *attempt.begun);
    attempt.first_token = attempt.first_decode;
  }
  if (finished) {
    timing.handover_hidden_us += finished->handover_hidden_us();
    timing.handover_exposed_us += finished->handover_exposed_us();
    timing.decode_wait_us += finished->decode_wait_us();
    timing.decode_us += finished->decode_us();
    if (!finished->link().empty()) link = finished->link();
  } else if (attempt.first_token && attempt.first_decode) {
    AddBroken(attempt, now);
  }
}

}  // namespace baton
