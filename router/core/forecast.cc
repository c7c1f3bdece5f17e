#include "router/core/forecast.h"

#include <cmath>

namespace baton {
namespace {

constexpr double kSpeedMemory = 10, kPaceMemory = 2;  // seconds
constexpr absl::Duration kOld = absl::Seconds(2);
constexpr double kMinMeasured = 1;                    // seconds
constexpr int kMinResults = 4;
// A result keeps at least this part of the older ones, also if it took longer than kSpeedMemory: so
// the speed is not that of a single prompt.
constexpr double kMinKeep = 0.75;
// Seconds without a result count up to kSpeedMemory, or up to this multiple of the usual time
// between two results if that is longer.
constexpr double kLongestGap = 3;
// The mean speed of workers that have more to do is at least about this part of the speed of a
// single prompt.
constexpr double kPartOfSeen = 0.5;
constexpr absl::Duration kShortestTime = absl::Milliseconds(1);  // Too short to tell a speed.
constexpr int kAnswersInMean = 64;

// Returns the seconds from `last` to `now`, and moves `last` to `now`. Returns 0 on the first call.
double Since(absl::Time* last, absl::Time now) {
  const double seconds =
      *last == absl::InfinitePast() ? 0 : std::max(0.0, absl::ToDoubleSeconds(now - *last));
  *last = std::max(*last, now);
  return seconds;
}

absl::Duration TimeOf(double tokens, std::optional<double> per_second) {
  if (!per_second || tokens <= 0) return absl::ZeroDuration();
  return absl::Seconds(tokens / *per_second);
}

}  // namespace

void WorkSpeed::Advance(absl::Time now) {
  const double seconds = Since(&last_, now);
  if (!busy_) return;
  open_ += seconds;
  last_busy_ = last_;
}

void WorkSpeed::SetBusy(bool busy, int workers, absl::Time now) {
  Advance(now);
  busy_ = busy && workers > 0;
  workers_ = workers;
}

double WorkSpeed::Open() const {
  if (results_ < kMinResults) return open_;
  return std::min(open_, std::max(kSpeedMemory, kLongestGap * seconds_ / count_));
}

void WorkSpeed::Done(uint64_t tokens, absl::Time now) {
  Advance(now);
  if (!busy_) return;
  const double open = Open();
  if (open > 0) {
    const double keep = std::max(std::exp(-open / kSpeedMemory), kMinKeep);
    tokens_ *= keep;
    seconds_ *= keep;
    count_ *= keep;
  }
  tokens_ += static_cast<double>(tokens) / workers_;
  seconds_ += open;
  count_ += 1;
  measured_ += open;
  open_ = 0;
  ++results_;
}

void WorkSpeed::DoneAlone(double tokens, absl::Duration time) {
  if (busy_ || time < kShortestTime) return;
  const std::optional<double> known = PerWorker();
  const double seen = kPartOfSeen * tokens / absl::ToDoubleSeconds(time);
  if (!known || *known >= seen) return;
  tokens_ = seen * seconds_;
  open_ = 0;
}

std::optional<double> WorkSpeed::PerWorker() const {
  if (measured_ < kMinMeasured || results_ < kMinResults || tokens_ <= 0) return std::nullopt;
  // If the next result came now, and were like the mean of the others, this would be the speed.
  const double next = (tokens_ + tokens_ / count_) / (seconds_ + Open());
  return std::min(tokens_ / seconds_, next);
}

bool WorkSpeed::Old(absl::Time now) const { return !busy_ && now - last_busy_ > kOld; }

std::optional<double> WorkSpeed::Total() const {
  const auto one = PerWorker();
  if (!one || workers_ == 0) return std::nullopt;
  return *one * workers_;
}

void TokenPace::Advance(absl::Time now) {
  const double seconds = Since(&last_, now);
  if (seconds == 0) return;
  const double keep = std::exp(-seconds / kPaceMemory);
  tokens_ *= keep;
  sequence_seconds_ = sequence_seconds_ * keep + generating_ * (1 - keep) * kPaceMemory;
}

absl::Duration TokenPace::Time() { return absl::Seconds(kPaceMemory); }

void TokenPace::Generating(int change, absl::Time now) {
  Advance(now);
  generating_ += change;
}

void TokenPace::Token(absl::Time now) {
  Advance(now);
  tokens_ += 1;
}

std::optional<absl::Duration> TokenPace::PerToken(absl::Time now) {
  Advance(now);
  if (tokens_ < 1 || generating_ < 2) return std::nullopt;
  return absl::Seconds(sequence_seconds_ / tokens_);
}

void Forecast::PromptDone(uint64_t tokens, uint64_t computed, absl::Duration time, absl::Time now) {
  for (WorkSpeed* speed : {&prompts_, &uncached_}) {
    speed->Done(speed == &prompts_ ? tokens : computed, now);
    speed->DoneAlone(static_cast<double>(computed), time);
  }
}

void Forecast::TokenDone(absl::Time now) {
  answers_.Done(1, now);
  pace_.Token(now);
  answers_.DoneAlone(pace_.tokens() / std::max(1, answers_.workers()), TokenPace::Time());
}

void Forecast::AnswerDone(uint64_t tokens, int max_tokens) {
  answers_seen_ = std::min(answers_seen_ + 1, kAnswersInMean);
  mean_answer_ += (static_cast<double>(tokens) - mean_answer_) / answers_seen_;
  mean_limit_ += (max_tokens - mean_limit_) / answers_seen_;
}

void Forecast::SetBusy(bool prompts, int prompt_workers, bool answers, int answer_workers,
                       absl::Time now) {
  prompts_.SetBusy(prompts, prompt_workers, now);
  uncached_.SetBusy(prompts, prompt_workers, now);
  answers_.SetBusy(answers, answer_workers, now);
}

absl::Duration Forecast::PromptTime(const Work& work) const {
  return TimeOf(work.prompt_tokens, prompts_.Total());
}

absl::Duration Forecast::AnswerTime(const Work& work) const {
  return TimeOf(work.answer_tokens, answers_.Total());
}

double Forecast::AnswerTokens(int max_tokens) const {
  if (answers_seen_ == 0) return max_tokens;
  if (max_tokens == 0) return mean_answer_;
  const double share = std::min(1.0, mean_answer_ / std::max(1.0, mean_limit_));
  return std::max(std::min<double>(max_tokens, mean_answer_), share * max_tokens);
}

absl::Duration Forecast::OwnTime(double prompt_tokens, double answer_tokens, absl::Time now) {
  absl::Duration time = TimeOf(prompt_tokens, prompts_.PerWorker());
  if (answers_seen_ > 0) {
    time += answer_tokens * pace_.PerToken(now).value_or(absl::ZeroDuration());
  }
  return time;
}

std::optional<uint64_t> Forecast::PromptTokensIn(absl::Duration time) const {
  const auto speed = uncached_.PerWorker();
  if (!speed || time == absl::InfiniteDuration()) return std::nullopt;
  return static_cast<uint64_t>(*speed * absl::ToDoubleSeconds(time));
}

}  // namespace baton
