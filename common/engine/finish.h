#pragma once

#include <optional>

#include "common/base/types.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// Reason why a sequence ended.
enum class FinishReason {
  kStop,    // an end token of the model or a stop token
  kLength,  // max_tokens, or the end of the model's context
};

// Returns why the token `id` at absolute position `position` ends its answer, or nullopt if it does
// not. `max_tokens` counts from the original prompt, so a restarted sequence ends where it would
// have ended without the restart. The last token of an answer has position `context - 1` at most.
std::optional<FinishReason> FinishAt(TokenId id, int position, int original_prompt_tokens,
                                     const SamplingOptions& sampling, int context);

// Returns true if the answer ends at `position` because of its length, whatever the token is.
bool IsLastPosition(int position, int original_prompt_tokens, const SamplingOptions& sampling,
                    int context);

}  // namespace baton
