#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/worker/caller_turns.h"

namespace baton {

// Decides in which order a worker computes its prompts:
//   1. The prompts that can still have their first token in time, the one that is due first in
//      front. If they can't all be in time, as few as possible are left out (Moore, "An n job, one
//      machine sequencing algorithm for minimizing the number of late jobs", 1968).
//   2. All other prompts. Callers take turns (CallerTurns); of one caller, the prompt with the
//      fewest tokens left goes first.
// Besides, the oldest prompt gets a part of each step (OldestShare), so that no prompt starves.
//
// Reads no clock. Loop thread only.
class PromptOrder {
 public:
  struct Prompt {
    uint64_t id = 0;  // A prompt that came later has a larger id.
    int left = 0;     // Tokens that are still to be computed.
    // Time at which the first token is due. InfiniteFuture: there is no such time.
    absl::Time due = absl::InfiniteFuture();
    uint64_t caller = 0;  // Equal for all prompts of one caller.
  };

  // Returns the number of tokens of a step of `step_tokens` tokens that the oldest prompt gets,
  // wherever it stands in the order: a quarter, in whole blocks, and at least one block. So in
  // steps of one block it gets everything, and prompts are computed in the order of arrival.
  static int OldestShare(int step_tokens, int block_tokens) {
    return std::max(step_tokens / 4 / block_tokens, 1) * block_tokens;
  }
  // Returns the number of tokens of a step that should have about `wanted_tokens`: whole blocks,
  // and at least four, so that the oldest prompt gets no more than a quarter.
  static int StepTokens(int wanted_tokens, int block_tokens) {
    return std::max((wanted_tokens + block_tokens - 1) / block_tokens, 4) * block_tokens;
  }

  // Notes that a step has computed `tokens` tokens of prompts in `time`, and that it could have had
  // `max_tokens`. Short steps do not count, because a worker that has little to do is slower than
  // it could be.
  void NoteStep(int tokens, int max_tokens, absl::Duration time);
  // Counts tokens that the worker computes for a caller.
  void Charge(uint64_t caller, int tokens) { turns_.Charge(caller, tokens); }
  // Sorts the prompts, which are all that the worker has. While the speed of the worker is not
  // known, a prompt can be in time until its due time has passed.
  void Sort(std::vector<Prompt>* prompts, absl::Time now);

 private:
  // Tokens and seconds of the latest steps, of which older ones count less.
  double tokens_ = 0, seconds_ = 0;
  CallerTurns turns_;
};

}  // namespace baton
