#include "router/core/admission.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/retry_after.h"
#include "router/core/request.h"

namespace baton {
namespace {

// Predicted times are multiplied by this number before they are compared with a deadline, because
// they are not exact.
constexpr double kMargin = 1.25;
// A request could wait for some time and still end before its deadline. It may wait for this part
// of that time.
constexpr double kPartOfSlack = 0.33;
// Prompts that were sent to a worker before its speed was known are done once it has this much to
// do.
constexpr absl::Duration kSettledAhead = absl::Seconds(2);
constexpr int kSlacksInMean = 64;  // Max requests of which Caller::log_slack is the mean.
constexpr absl::Duration kShortestLimit = absl::Seconds(1);  // Smallest result of MaxWait().
// Shortest and longest time after which a refused client is told to try again, before the jitter.
constexpr absl::Duration kSoonest = absl::Seconds(1), kLatest = absl::Seconds(60);

}  // namespace

Admission::Admission(CoreContext* core, Membership* membership, RequestQueue* queue)
    : core_(core), membership_(membership), queue_(queue), random_(core->options.policy_seed) {}

Work Admission::AtWorkers() const {
  return {.prompt_tokens = static_cast<double>(membership_->workers().WaitingPromptTokens())};
}

Work Admission::AtWorkersBefore(uint64_t turn) const {
  return {.prompt_tokens =
              static_cast<double>(membership_->workers().WaitingPromptTokensBefore(turn))};
}

uint64_t Admission::TurnOf(const Caller& caller, const Work& own) const {
  uint64_t had = caller.had();
  if (caller.waiting.empty()) {
    // The caller's `charged` is raised when the request begins to wait (Callers::BeginsToWait).
    const uint64_t start = core_->callers.Start(queue_->SmallestCharge());
    had += start - std::min(start, caller.charged);
  }
  return std::max(caller.last_turn, had + static_cast<uint64_t>(own.tokens()));
}

// Callers take turns by tokens. So while the work of this request's caller is done up to the
// request, each other caller gets about as many tokens, or all that it waits for if that is less.
absl::Duration Admission::WaitOf(const Caller& caller, const Work& own) const {
  Work until_own = own;
  until_own += caller.work;
  const uint64_t turn = TurnOf(caller, until_own);
  const auto until = static_cast<double>(turn);
  Work ahead = queue_->work_again();
  ahead += AtWorkersBefore(turn);
  ahead += caller.work;
  for (const Caller* other : queue_->callers()) {
    if (other == &caller) continue;
    const double share =
        (until - static_cast<double>(other->had())) / std::max(1.0, other->work.tokens());
    ahead += other->work * std::clamp(share, 0.0, 1.0);
  }
  return core_->forecast.TimeFor(ahead);
}

absl::Duration Admission::OwnTime(const Request& request) {
  const bool speed_is_known = !core_->forecast.PromptSpeedIsOld(core_->now) ||
                              membership_->workers().WaitingPromptTokens() > 0;
  return core_->forecast.OwnTime(
      speed_is_known ? static_cast<double>(request.checked.prompt.size()) : 0,
      core_->forecast.AnswerTokens(request.max_tokens), core_->now);
}

absl::Duration Admission::MaxWait(Caller* caller, absl::Duration slack) {
  // Deadlines that can't be met even without a wait say nothing about the others.
  if (slack > absl::ZeroDuration()) {
    // The geometric mean of slacks that make a difference: a few requests without a deadline, or
    // with a very short one, must not decide for the others.
    const absl::Duration longest =
        std::clamp(core_->options.max_queue_wait, kShortestLimit, absl::Hours(1));
    const double seconds = absl::ToDoubleSeconds(
        std::clamp(slack, kShortestLimit / kPartOfSlack,
                   longest / kPartOfSlack + absl::Seconds(1)));  // One more, for the rounding.
    caller->slacks_seen = std::min(caller->slacks_seen + 1, kSlacksInMean);
    caller->log_slack += (std::log(seconds) - caller->log_slack) / caller->slacks_seen;
  }
  if (caller->slacks_seen == 0) return core_->options.max_queue_wait;
  return std::min(core_->options.max_queue_wait,
                  absl::Seconds(kPartOfSlack * std::exp(caller->log_slack)));
}

absl::Status Admission::OnArrival(const Request& request) {
  Update();
  const Work own = {.prompt_tokens = static_cast<double>(request.checked.prompt.size()),
                    .answer_tokens = core_->forecast.AnswerTokens(request.max_tokens)};
  const absl::Duration wait = WaitOf(*request.caller, own);
  const absl::Duration needs = kMargin * OwnTime(request);
  const absl::Duration left = request.checked.deadline - core_->now;
  const absl::Duration max_wait = MaxWait(request.caller, left - needs);
  if (wait > max_wait) {
    return Refuse(
        request,
        absl::StrCat("the request would wait for about ",
                     absl::FormatDuration(absl::Ceil(wait, absl::Milliseconds(100))),
                     "; at present the limit is ",
                     absl::FormatDuration(absl::Floor(max_wait, absl::Milliseconds(100)))),
        wait - max_wait / 2);
  }
  // If the newest requests go first, this one waits only for what the workers have begun.
  const absl::Duration begins =
      NewestFirst() ? core_->forecast.TimeFor(AtWorkersBefore(TurnOf(*request.caller, own))) : wait;
  if (kMargin * begins + needs <= left) return absl::OkStatus();
  return Refuse(
      request,
      absl::StrCat("the answer would end in about ",
                   absl::FormatDuration(absl::Ceil(begins + needs, absl::Milliseconds(100))),
                   ", and the deadline is in ",
                   absl::FormatDuration(absl::Floor(left, absl::Milliseconds(1)))),
      kMargin * begins + needs - left,
      needs > left ? Cause::kCallerWantsTooMuch : Cause::kWorkersAreShort);
}

absl::Status Admission::OnTurn(const Request& request) {
  const absl::Duration needs = kMargin * OwnTime(request);
  const absl::Duration left = request.checked.deadline - core_->now;
  if (needs <= left) return absl::OkStatus();
  return Refuse(
      request,
      absl::StrCat("the answer takes about ",
                   absl::FormatDuration(absl::Ceil(needs, absl::Milliseconds(100))),
                   ", and after a wait of ", absl::FormatDuration(core_->now - request.queue.since),
                   " the deadline is in ",
                   absl::FormatDuration(absl::Floor(left, absl::Milliseconds(1)))),
      LongerWait());
}

absl::Status Admission::CallerLimitsOf(const Request& request, int answers) {
  Callers& callers = core_->callers;
  const CallerLimits& limits = callers.limits();
  const size_t waiting = request.caller->waiting.size();
  if (limits.queued > 0 && static_cast<int>(waiting) + answers > limits.queued) {
    return Refuse(request,
                  absl::StrCat("this caller has ", waiting, " requests in the queue; the limit of ",
                               "each caller is ", limits.queued),
                  LongerWait() / 2, Cause::kCallerWantsTooMuch);
  }
  const absl::Duration in = callers.AllowanceComesIn(request.caller, core_->now);
  if (in == absl::ZeroDuration()) return absl::OkStatus();
  return Refuse(
      request,
      absl::StrCat("this caller has had its tokens of the last minute; the limit of each ",
                   "caller is ", limits.tokens_per_minute, " per minute"),
      in, Cause::kCallerWantsTooMuch);
}

absl::Status Admission::QueueFull(const Request& request, std::string why) {
  return Refuse(request, std::move(why), LongerWait() / 2);
}

absl::Status Admission::WaitedTooLong(const Request& request) {
  return Refuse(request,
                absl::StrCat("the request has waited for ",
                             absl::FormatDuration(core_->options.max_queue_wait),
                             ", which is --max-queue-wait"),
                LongerWait() / 2);
}

absl::Status Admission::NoRoom(const Request& request, absl::string_view why) {
  // Most of such a request's tokens may have been computed, so they are not counted as refused.
  request.caller->metrics->refused.Add();
  return TryAgain(std::string(why), LongerWait() / 2);
}

absl::Status Admission::Refuse(const Request& request, std::string why, absl::Duration in,
                               Cause cause) {
  request.caller->metrics->refused.Add();
  if (cause == Cause::kCallerWantsTooMuch) return TryAgain(std::move(why), in);
  ++core_->counters.shed;
  core_->metrics->RefusedTokens(request.checked.prompt.size(),
                                core_->forecast.AnswerTokens(request.max_tokens),
                                decode_only_ || answer_wait_ > prompt_wait_ ||
                                    request.checked.mode == ServingMode::kColocated);
  return TryAgain(absl::StrCat("overloaded: ", why), in);
}

absl::Status Admission::TryAgain(std::string why, absl::Duration in) {
  // The jitter keeps callers that were refused together from coming again together.
  std::uniform_real_distribution<double> jitter(0.75, 1.25);
  return WithRetryAfter(absl::ResourceExhaustedError(why),
                        std::clamp(in, kSoonest, kLatest) * jitter(random_));
}

void Admission::Update() {
  Work work = queue_->work();
  work += AtWorkers();
  prompt_wait_ = core_->forecast.PromptTime(work);
  answer_wait_ = core_->forecast.AnswerTime(work);
  const bool is_long = LongerWait() > core_->options.max_queue_wait / 2;
  if (is_long && !long_since_) long_since_ = core_->now;
  if (!is_long) long_since_.reset();
  queue_->SetNewestFirst(NewestFirst());
}

// Until the speed of the workers is known, nothing holds prompts back. Callers then get what the
// workers have room for, and should not pay for that later.
void Admission::Settle(int computing) {
  core_->callers.ForgetCharges();
  const auto ahead = core_->forecast.PromptTokensIn(kSettledAhead);
  settled_ = ahead && membership_->workers().WaitingPromptTokens() <=
                          *ahead * static_cast<uint64_t>(computing);
}

void Admission::NoteRound(bool tickets_wait) {
  const ServingMode mode = core_->options.mode;
  const WorkerTable::Duties duties =
      membership_->workers().DutiesOf(membership_->served(), mode, core_->now);
  decode_only_ = mode == ServingMode::kColocated || duties.prefill == 0;
  const bool prompts = queue_->prompts_wait() || queue_->colocated_wait();
  core_->forecast.SetBusy((prompts || duties.prompts_queue) && !tickets_wait,
                          decode_only_ ? duties.decode : duties.prefill,
                          tickets_wait || duties.batches_full || (decode_only_ && prompts),
                          duties.decode, core_->now);
  if (!settled_) Settle(decode_only_ ? duties.decode : duties.prefill);
  Update();
  const auto set = [](Gauge& gauge, absl::Duration wait) {
    gauge.Set(absl::ToInt64Milliseconds(wait));
  };
  RequestMetrics& metrics = *core_->metrics;
  set(metrics.prefill_wait_ms, decode_only_ ? absl::ZeroDuration() : prompt_wait_);
  set(metrics.decode_wait_ms, decode_only_ ? LongerWait() : answer_wait_);
  metrics.expected_answer.Set(static_cast<int64_t>(core_->forecast.AnswerTokens(0)));
}

}  // namespace baton
