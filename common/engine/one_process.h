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
  std::vector<SampledToken> prompt;  // with logprobs, if sampling.prompt_logprobs is set
  std::vector<SampledToken> tokens;  // generated, the one that ended it included
  FinishReason reason = FinishReason::kLength;
};

// One prompt, answered in one pool by one engine, alone: the plain truth that answers of the split
// system are compared with. The prompt runs in chunks of `chunk_tokens` (0: in one, which `engine`
// must have rows for). `original_prompt_tokens` of `tokens` are the prompt, the rest was generated
// before; 0 means all. Blocks come from `pool`, whose memory `engine` writes, and go back.
absl::StatusOr<OneProcessAnswer> GenerateInOneProcess(Engine* engine, BlockPool* pool,
                                                      const ModelConfig& config, int block_tokens,
                                                      absl::Span<const TokenId> tokens,
                                                      const SamplingOptions& sampling,
                                                      int chunk_tokens = 0,
                                                      int original_prompt_tokens = 0);

}  // namespace baton
