#include "common/sampling/token_history.h"

#include <algorithm>

#include "common/sampling/sampling_options.h"

namespace baton {

TokenHistory::TokenHistory(absl::Span<const TokenId> tokens, int original_prompt_tokens) {
  const size_t prompt = std::min<size_t>(original_prompt_tokens, tokens.size());
  for (const TokenId id : tokens.first(prompt)) {
    if (seen_.emplace(id, -1).second) distinct_.push_back(id);
  }
  const size_t last = std::min(prompt, SamplingOptions::kMaxBadWordTokens);
  for (const TokenId id : tokens.subspan(prompt - last, last)) last_.push_back(id);
  for (const TokenId id : tokens.subspan(prompt)) Append(id);
}

void TokenHistory::Append(TokenId id) {
  const auto [place, added] = seen_.emplace(id, -1);
  if (added) distinct_.push_back(id);
  if (place->second < 0) {
    place->second = static_cast<int>(generated_.size());
    generated_.push_back({id, 0});
  }
  ++generated_[place->second].times;
  if (last_.size() >= 2 * SamplingOptions::kMaxBadWordTokens) {
    last_.erase(last_.begin(), last_.end() - SamplingOptions::kMaxBadWordTokens);
  }
  last_.push_back(id);
}

bool TokenHistory::EndsWith(absl::Span<const TokenId> tokens) const {
  return tokens.size() <= last_.size() &&
         std::equal(tokens.rbegin(), tokens.rend(), last_.rbegin());
}

}  // namespace baton
