#include "common/worker/caller_turns.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace baton {

void CallerTurns::Charge(uint64_t caller, int tokens) {
  Account& account = accounts_[caller];
  floor_ = std::max(floor_, account.charged);
  account.charged += static_cast<uint64_t>(tokens);
  account.last = ++charges_;
}

uint64_t CallerTurns::Slack(absl::Span<const Prompt> prompts) {
  int longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.left);
  return 1024 + 2 * static_cast<uint64_t>(longest);
}

void CallerTurns::NotePresent(absl::Span<const Prompt> prompts) {
  std::set<uint64_t> now;
  for (const Prompt& prompt : prompts) now.insert(prompt.caller);
  // The smallest charge of the callers that had prompts at the last call, too.
  std::optional<uint64_t> smallest;
  for (const uint64_t caller : now) {
    if (!present_.contains(caller)) continue;
    const uint64_t charged = accounts_[caller].charged;
    smallest = std::min(smallest.value_or(charged), charged);
  }
  const uint64_t lowest = smallest.value_or(floor_);
  uint64_t highest = 0;
  for (const uint64_t caller : now) {
    Account& account = accounts_[caller];
    account.charged = std::max(account.charged, lowest);
    highest = std::max(highest, account.charged);
  }
  const uint64_t floor = highest - std::min(highest, Slack(prompts));
  for (const uint64_t caller : now) {
    Account& account = accounts_[caller];
    account.behind = account.charged < floor || (account.behind && account.charged == floor);
    account.charged = std::max(account.charged, floor);
  }
  // A caller that was charged no more than those that are here would be raised to their charge when
  // it comes back, so it need not be remembered.
  std::erase_if(accounts_, [&](const auto& entry) {
    return !now.contains(entry.first) && entry.second.charged <= lowest;
  });
  if (accounts_.size() > now.size() + kMaxIdle) {
    std::erase_if(accounts_, [&](const auto& entry) { return !now.contains(entry.first); });
  }
  present_ = std::move(now);
}

std::vector<size_t> CallerTurns::Order(absl::Span<const Prompt> prompts) {
  NotePresent(prompts);
  // For each prompt: what its caller will have had once the prompt is computed, and the time of the
  // caller's last charge. The next prompt of a caller that is behind is not counted. Otherwise, of
  // several such callers, the one with the shortest prompts would always go first.
  std::vector<std::pair<uint64_t, uint64_t>> keys;
  std::map<uint64_t, uint64_t> sums;
  for (const Prompt& prompt : prompts) {
    const Account& account = accounts_.at(prompt.caller);
    const auto [sum, next] = sums.try_emplace(prompt.caller, account.charged);
    const uint64_t before = sum->second;
    sum->second += static_cast<uint64_t>(std::max(prompt.left, 0));
    keys.emplace_back(next && account.behind ? before : sum->second, account.last);
  }
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  return order;
}

}  // namespace baton
