#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampler.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// The logprobs of a prompt's own tokens, gathered while its chunks run.
struct PromptScores {
  absl::Span<const TokenId> prompt;  // all of it
  int alternatives = 0;              // of each token
  // Run adds token 0, without a logprob, and for each row of the prompt the token after it.
  std::vector<SampledToken> tokens;
  absl::Status status;             // Internal once some row's logits were no numbers
  std::function<void()> progress;  // called after every few rows, if there is one
};

// Some tokens of one sequence: a chunk of its prompt, or its latest token.
struct PlanItem {
  absl::Span<const TokenId> tokens;  // at least one
  int first_position = 0;            // absolute, of tokens[0]
  absl::Span<const BlockId> blocks;  // in token order, covering the last token
  // How to draw the token that follows; null when none is wanted (a chunk with more to come).
  const SamplingOptions* sampling = nullptr;
  int original_prompt_tokens = 0;  // min_tokens counts from here
  // All tokens so far, `tokens` included. Must be there if `sampling` looks back.
  const TokenHistory* history = nullptr;
  PromptScores* scores = nullptr;  // where the prompt's logprobs go, if they are wanted
  // Of the rotary table that the sequence's KV is computed with (rope_config.h), the same for all
  // of it; 0 for that of a sequence which ends with this item.
  int rope_reach = 0;
};

// Which tokens of which sequences run in one step. Views: all must live until Run returns.
struct StepPlan {
  std::vector<PlanItem> items;
};

// Runs steps: a plan in, tokens out. What both workers share. One thread.
class Engine {
 public:
  // All must outlive the engine; `kv` is laid out as the model says. Steps have up to `max_rows`
  // tokens over all items. ResourceExhausted when their activations do not fit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Model* model, Backend* backend,
                                                        const KvView& kv, int max_rows);

  // Writes the KV of all items into the pool. The result has one entry per item with `sampling`, in
  // order: a token, or Internal where that sequence's logits are no numbers (the others are sound).
  // `layer_done`: see ForwardPass::Run. An error of the step itself leaves the KV of its
  // positions undefined. An empty plan does nothing.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Run(
      const StepPlan& plan, const LayerDone& layer_done = nullptr);

  int max_rows() const { return forward_->max_rows(); }
  uint64_t steps() const { return steps_; }

 private:
  Engine(const Model* model, const KvView& kv, std::unique_ptr<ForwardPass> forward);
  absl::Status Score(const PlanItem& item, int first_row);

  const Model* model_;
  const KvView kv_;
  const std::unique_ptr<ForwardPass> forward_;
  Sampler sampler_;
  uint64_t steps_ = 0;
  // Of the current step, kept for their memory.
  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> sequences_;
  std::vector<int> logit_rows_, rope_reach_;
  std::vector<float> logits_;
  std::vector<float> few_logits_;
};

}  // namespace baton
