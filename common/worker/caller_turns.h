#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/types/span.h"

namespace baton {

// Shares a worker between the callers whose prompts wait there. The caller for which the worker
// will have computed the fewest tokens, once the caller's next prompt is computed, goes first
// (weighted fair queueing; Demers et al., "Analysis and simulation of a fair queueing algorithm",
// 1989). So a short prompt need not wait for the long prompts of other callers, and many short
// prompts of one caller do not delay others by more than the caller's share.
//
// Routers take turns too, but each knows only its own requests, and a prompt that it has sent can
// be passed only here. A caller that comes, or comes back, gets no credit for the time in which it
// had no prompts here. A caller whose prompts could not begin, because blocks or places in the
// batch were missing, gets some credit (Slack()): then its prompts are next, but not for long.
//
// Loop thread only.
class CallerTurns {
 public:
  // At most this many callers without prompts are remembered.
  static constexpr size_t kMaxIdle = 4096;

  struct Prompt {
    uint64_t caller = 0;  // Equal for all prompts of one caller.
    int left = 0;         // Tokens that are still to be computed.
  };

  // Counts tokens that the worker computes for the caller.
  void Charge(uint64_t caller, int tokens);
  // Returns the order in which the prompts are computed, as indexes. `prompts` are all that wait
  // and whose order the callers' turns decide; those of one caller keep their order.
  std::vector<size_t> Order(absl::Span<const Prompt> prompts);

 private:
  // Max tokens by which the charges of two callers with prompts differ.
  static uint64_t Slack(absl::Span<const Prompt> prompts);
  // Makes the callers of `prompts` the present ones.
  void NotePresent(absl::Span<const Prompt> prompts);

  struct Account {
    uint64_t charged = 0;
    uint64_t last = 0;    // Number of the caller's last charge. Charges are counted from 1.
    bool behind = false;  // The charge was raised because it differed too much from another one.
  };
  std::map<uint64_t, Account> accounts_;  // Key: the caller.
  std::set<uint64_t> present_;            // Callers that had prompts at the last call of Order().
  uint64_t charges_ = 0;
  uint64_t floor_ = 0;  // Largest charge of a caller when it was charged more.
};

}  // namespace baton
