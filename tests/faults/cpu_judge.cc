#include "tests/faults/cpu_judge.h"

#include "common/base/check.h"

namespace baton {

bool CpuJudge::Chose(const std::vector<TokenId>& prompt, const std::vector<TokenId>& ids,
                     const SamplingOptions& sampling) {
  MutexLock lock(&mutex_);
  std::vector<TokenId> text = prompt;
  text.insert(text.end(), ids.begin(), ids.end());
  const auto key = std::make_tuple(text, sampling.seed, sampling.answer_index);
  if (const auto it = judged_.find(key); it != judged_.end()) return it->second;
  SamplingOptions scored;
  scored.max_tokens = 1;
  scored.prompt_logprobs = truth_->config().vocab;
  const auto scores = truth_->FullAnswer(text, scored);
  BATON_CHECK(scores.ok()) << scores.status();
  bool right = true;
  for (size_t i = prompt.size(); i < text.size(); ++i) {
    const auto clear = ClearChoice(scores->prompt[i].top, static_cast<int>(i), sampling, bounds_);
    ++tokens_;
    compared_ += clear.has_value();
    if (clear && *clear != text[i]) right = false;
  }
  return judged_[key] = right;
}

std::pair<int, int> CpuJudge::counts() {
  MutexLock lock(&mutex_);
  return {tokens_, compared_};
}

}  // namespace baton
