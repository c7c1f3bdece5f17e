#include "common/worker/prompt_order.h"

#include <queue>
#include <tuple>
#include <utility>

namespace baton {
namespace {

constexpr double kKeep = 0.9;  // Weight of a step, relative to the step after it.

}  // namespace

void PromptOrder::NoteStep(int tokens, int max_tokens, absl::Duration time) {
  if (2 * tokens < max_tokens) return;
  tokens_ = kKeep * tokens_ + tokens;
  seconds_ = kKeep * seconds_ + absl::ToDoubleSeconds(time);
}

void PromptOrder::Sort(std::vector<Prompt>* prompts, absl::Time now) {
  std::sort(prompts->begin(), prompts->end(), [](const Prompt& a, const Prompt& b) {
    return std::tuple(a.due, a.left, a.id) < std::tuple(b.due, b.left, b.id);
  });
  const double seconds_per_token = tokens_ > 0 ? seconds_ / tokens_ : 0;
  const auto time_for = [=](int tokens) { return absl::Seconds(tokens * seconds_per_token); };
  // Prompts that are in time so far, and the prompt with the most tokens left on top.
  std::priority_queue<std::pair<int, size_t>> in_time;
  std::vector<bool> late(prompts->size());
  absl::Time end = now;  // Predicted end of the prompts in `in_time`.
  for (size_t i = 0; i < prompts->size(); ++i) {
    const Prompt& prompt = (*prompts)[i];
    late[i] = prompt.due == absl::InfiniteFuture() || prompt.due < now;
    if (late[i]) continue;
    in_time.emplace(prompt.left, i);
    end += time_for(prompt.left);
    if (end <= prompt.due) continue;
    end -= time_for(in_time.top().first);
    late[in_time.top().second] = true;
    in_time.pop();
  }
  std::vector<Prompt> sorted, others;
  for (size_t i = 0; i < prompts->size(); ++i) (late[i] ? others : sorted).push_back((*prompts)[i]);
  std::sort(others.begin(), others.end(), [](const Prompt& a, const Prompt& b) {
    return std::tuple(a.left, a.id) < std::tuple(b.left, b.id);
  });
  std::vector<CallerTurns::Prompt> turns;
  for (const Prompt& prompt : others) turns.push_back({prompt.caller, prompt.left});
  for (const size_t i : turns_.Order(turns)) sorted.push_back(others[i]);
  *prompts = std::move(sorted);
}

}  // namespace baton
