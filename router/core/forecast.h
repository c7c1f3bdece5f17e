#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace baton {

// Measures how many tokens per second a worker computes while the workers have more to do than they
// can begin. Time with less to do does not count: workers are then slower than they could be. The
// latest ten such seconds count most, and at least the latest few results. Reads no clock; `now`
// never goes back.
class WorkSpeed {
 public:
  // Notes whether the workers have more to do than they can begin, from `now` on, and the number of
  // workers.
  void SetBusy(bool busy, int workers, absl::Time now);
  // Counts tokens that a worker has computed.
  void Done(uint64_t tokens, absl::Time now);
  // Raises the speed if a worker with less to do was faster than measured: it computed `tokens`
  // tokens in `time`. Does nothing while the workers have more to do than they can begin, or no
  // speed is known.
  void DoneAlone(double tokens, absl::Duration time);
  // Tokens per second of one worker. Not set until a second and a few results were measured. Falls
  // while no result comes, but not for long: a worker that hangs says nothing about its speed.
  std::optional<double> PerWorker() const;
  // Tokens per second of all workers.
  std::optional<double> Total() const;
  // True if nothing was measured in the last two seconds.
  bool Old(absl::Time now) const;
  int workers() const { return workers_; }

 private:
  void Advance(absl::Time now);
  // Returns the seconds since the last result that count.
  double Open() const;

  bool busy_ = false;
  int workers_ = 0;
  absl::Time last_ = absl::InfinitePast(), last_busy_ = absl::InfinitePast();
  // Sums over the results, in which older ones count less: tokens of one worker, seconds, and the
  // number of results.
  double tokens_ = 0, seconds_ = 0, count_ = 0;
  double open_ = 0;      // Seconds since the last result.
  double measured_ = 0;  // Seconds that were measured so far.
  int results_ = 0;      // Calls of Done() that counted.
};

// Measures the time between two tokens of one sequence, as the mean over all sequences: their
// number, divided by the tokens per second of all (Little's law). The latest two seconds count
// most.
class TokenPace {
 public:
  // Notes that `change` more sequences generate tokens from now on; fewer, if it is negative.
  void Generating(int change, absl::Time now);
  // Counts a token of any of these sequences.
  void Token(absl::Time now);
  // Returns the time between two tokens. Not set if fewer than two sequences generate tokens, or if
  // hardly any token came in the last seconds.
  std::optional<absl::Duration> PerToken(absl::Time now);
  // Tokens of all sequences, with times in which older ones count less: so many came in Time().
  double tokens() const { return tokens_; }
  static absl::Duration Time();

 private:
  void Advance(absl::Time now);

  int generating_ = 0;
  absl::Time last_ = absl::InfinitePast();
  double sequence_seconds_ = 0, tokens_ = 0;  // Sums in which older values count less.
};

// Work that waits: tokens of prompts, and expected tokens of answers.
struct Work {
  double prompt_tokens = 0, answer_tokens = 0;
  double tokens() const { return prompt_tokens + answer_tokens; }
  Work& operator+=(const Work& other) {
    prompt_tokens += other.prompt_tokens;
    answer_tokens += other.answer_tokens;
    return *this;
  }
  Work operator*(double factor) const { return {prompt_tokens * factor, answer_tokens * factor}; }
  Work& operator-=(const Work& other) {
    prompt_tokens -= other.prompt_tokens;
    answer_tokens -= other.answer_tokens;
    return *this;
  }
};

// Predicts how long work takes, from how long work took lately. Core's loop thread only.
//
// Prompts and answers are computed at the same time, by different workers or in the same steps. So
// the time for some work is the longer of the times for its prompts and for its answers, and each
// speed is measured while the other kind of work goes on too.
class Forecast {
 public:
  // --- Events ---

  // A worker has completed a prompt of `tokens` tokens, which it got `time` ago. It computed
  // `computed` of them, and had the others in its cache.
  void PromptDone(uint64_t tokens, uint64_t computed, absl::Duration time, absl::Time now);
  // One more sequence generates tokens (`change` is 1), or one less (-1).
  void Generating(int change, absl::Time now) { pace_.Generating(change, now); }
  // A worker has computed a token of an answer.
  void TokenDone(absl::Time now);
  // An answer of `tokens` tokens is complete, which could have had `max_tokens`.
  void AnswerDone(uint64_t tokens, int max_tokens);
  // Notes which work can't begin for lack of workers, and the numbers of workers that compute
  // prompts and answers.
  void SetBusy(bool prompts, int prompt_workers, bool answers, int answer_workers, absl::Time now);

  // --- Predictions ---

  // Times for the prompts and for the answers of `work`. Zero while the speed is not known.
  absl::Duration PromptTime(const Work& work) const;
  absl::Duration AnswerTime(const Work& work) const;
  absl::Duration TimeFor(const Work& work) const {
    return std::max(PromptTime(work), AnswerTime(work));
  }
  // Expected tokens of an answer of at most `max_tokens` tokens (0: not known). It is the larger of
  // the mean of the latest answers, and the same share of `max_tokens` as the latest answers had of
  // theirs. If no answer is known, `max_tokens`.
  double AnswerTokens(int max_tokens) const;
  // Expected time from the moment at which one worker begins with a prompt of `prompt_tokens`
  // tokens to the last token of its answer of `answer_tokens` tokens. Parts that are not known
  // count as zero.
  absl::Duration OwnTime(double prompt_tokens, double answer_tokens, absl::Time now);
  // True if the speed of prompts was not measured in the last two seconds. If no worker has prompts
  // to compute, the speed may then be wrong, and no request should be refused because of it: only a
  // request that runs shows how fast the workers are now.
  bool PromptSpeedIsOld(absl::Time now) const { return prompts_.Old(now); }
  // Prompt tokens that one worker computes in `time`, cached ones not counted. Not set if the speed
  // is not known or `time` is infinite.
  std::optional<uint64_t> PromptTokensIn(absl::Duration time) const;

 private:
  WorkSpeed prompts_, uncached_, answers_;
  TokenPace pace_;
  double mean_answer_ = 0, mean_limit_ = 0;  // Means of the answers' tokens and max_tokens.
  int answers_seen_ = 0;
};

}  // namespace baton
