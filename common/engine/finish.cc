#include "common/engine/finish.h"

#include <algorithm>

namespace baton {

std::optional<FinishReason> FinishAt(TokenId id, int position, int original_prompt_tokens,
                                     const SamplingOptions& sampling, int context) {
  const auto& stops = sampling.stop_tokens;
  if (std::find(stops.begin(), stops.end(), id) != stops.end()) return FinishReason::kStop;
  if (position - original_prompt_tokens + 1 >= sampling.max_tokens) return FinishReason::kLength;
  if (position + 1 >= context) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace baton
