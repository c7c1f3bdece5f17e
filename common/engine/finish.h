#pragma once

#include <optional>

#include "common/base/types.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// Why a sequence ended.
enum class FinishReason {
  kStop,    // an end token of the model or a stop token
  kLength,  // max_tokens, or the end of the model's context
};

// Whether the token `id` at absolute position `position` ends its answer. `max_tokens` counts from
// the original prompt, so a restarted sequence ends where it would have; an answer's last token has
// position `context - 1` at most.
std::optional<FinishReason> FinishAt(TokenId id, int position, int original_prompt_tokens,
                                     const SamplingOptions& sampling, int context);

// Whether whatever token is at `position` ends its answer, for its length.
bool IsLastPosition(int position, int original_prompt_tokens, const SamplingOptions& sampling,
                    int context);

}  // namespace baton
