#include "common/engine/one_process.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<OneProcessAnswer> GenerateInOneProcess(Engine* engine, BlockPool* pool,
                                                      const ModelConfig& config, int block_tokens,
                                                      absl::Span<const TokenId> tokens,
                                                      const SamplingOptions& sampling,
                                                      int chunk_tokens,
                                                      int original_prompt_tokens) {
  std::vector<TokenId> sequence(tokens.begin(), tokens.end());
  const int prompt =
      original_prompt_tokens > 0 ? original_prompt_tokens : static_cast<int>(sequence.size());
  if (sequence.empty() || static_cast<int>(sequence.size()) >= config.context) {
    return absl::InvalidArgumentError(absl::StrCat("a prompt of ", sequence.size(),
                                                   " tokens; it takes 1 to ", config.context - 1));
  }
  std::vector<BlockId> blocks;
  const absl::Cleanup free_blocks = [&] { pool->Release(blocks); };
  OneProcessAnswer answer;
  TokenHistory history(sequence, prompt);
  PromptScores scores = {.prompt = tokens.first(prompt)};
  if (sampling.prompt_logprobs) scores.alternatives = *sampling.prompt_logprobs;
  size_t computed = 0;
  int reach = 0;
  while (true) {
    if (static_cast<int>(sequence.size()) > reach) {
      // The sequence now needs another rotary table. Its KV was computed with the old one and can't
      // be used, so all of it is computed anew.
      reach = RopeReach(config.rope, prompt, static_cast<int>(sequence.size()));
      computed = 0;
    }
    const size_t max = chunk_tokens > 0 ? chunk_tokens : sequence.size();
    const size_t rows = std::min(max, sequence.size() - computed);
    const bool last = computed + rows == sequence.size();
    const int missing = (static_cast<int>(computed + rows) + block_tokens - 1) / block_tokens -
                        static_cast<int>(blocks.size());
    if (missing > 0) {
      ASSIGN_OR_RETURN(auto more, pool->Take(missing));
      blocks.insert(blocks.end(), more.begin(), more.end());
    }
    // Scores the prompt only when its KV is computed for the first time, not when it is computed
    // anew.
    const bool wants_scores = sampling.prompt_logprobs && answer.tokens.empty();
    const StepPlan plan = {{{.tokens = absl::MakeConstSpan(sequence).subspan(computed, rows),
                             .first_position = static_cast<int>(computed),
                             .blocks = blocks,
                             .sampling = last ? &sampling : nullptr,
                             .original_prompt_tokens = prompt,
                             .history = &history,
                             .scores = wants_scores ? &scores : nullptr,
                             .rope_reach = reach}}};
    ASSIGN_OR_RETURN(auto sampled, engine->Run(plan));
    RETURN_IF_ERROR(scores.status);
    computed += rows;
    if (!last) continue;
    absl::StatusOr<SampledToken>& token = sampled.front();
    RETURN_IF_ERROR(token.status());
    const TokenId id = token->id;
    const auto finish = FinishAt(id, token->position, prompt, sampling, config.context);
    answer.tokens.push_back(*std::move(token));
    if (finish) {
      answer.prompt = std::move(scores.tokens);
      answer.reason = *finish;
      return answer;
    }
    sequence.push_back(id);
    history.Append(id);
  }
}

}  // namespace baton
