#include "common/engine/finish.h"

#include <algorithm>

namespace baton {

std::optional<FinishReason> FinishAt(TokenId id, int position, int original_prompt_tokens,
                                     const SamplingOptions& sampling, int context) {
  const auto& stops = sampling.stop_tokens;
  if (std::find(stops.begin(), stops.end(), id) != stops.end()) return FinishReason::kStop;
  if (IsLastPosition(position, original_prompt_tokens, sampling, context)) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

bool IsLastPosition(int position, int original_prompt_tokens, const SamplingOptions& sampling,
                    int context) {
  return position - original_prompt_tokens + 1 >= sampling.max_tokens || position + 1 >= context;
}

}  // namespace baton
