#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/engine/engine.h"
#include "common/engine/finish.h"
#include "common/kv_cache/block_pool.h"

namespace baton {

struct OneProcessAnswer {
  std::vector<SampledToken> prompt;  // has logprobs if sampling.prompt_logprobs is set
  std::vector<SampledToken> tokens;  // generated tokens, including the one that ended the answer
  FinishReason reason = FinishReason::kLength;
};

// Answers one prompt alone, with one engine and one pool. Tests compare the answers of separate
// prefill and decode workers with this reference. The prompt runs in chunks of `chunk_tokens`; 0
// means one chunk, which must fit into the rows of `engine`. The first `original_prompt_tokens` of
// `tokens` are the prompt, and the rest was generated before; 0 means that all are the prompt.
// Blocks are taken from `pool`, whose memory `engine` writes, and are released before the call
// returns.
absl::StatusOr<OneProcessAnswer> GenerateInOneProcess(Engine* engine, BlockPool* pool,
                                                      const ModelConfig& config, int block_tokens,
                                                      absl::Span<const TokenId> tokens,
                                                      const SamplingOptions& sampling,
                                                      int chunk_tokens = 0,
                                                      int original_prompt_tokens = 0);

}  // namespace baton
