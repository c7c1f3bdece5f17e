#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/engine/plan_rows.h"
#include "common/engine/step_size.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampler.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// Logprobs of a prompt's own tokens, gathered while its chunks run.
struct PromptScores {
  absl::Span<const TokenId> prompt;  // the whole prompt
  int alternatives = 0;              // number of alternatives per token
  // The results, which Engine::Run appends: first the token at position 0 of the prompt, without a
  // logprob; then, for each row of the prompt, the token that follows this row.
  std::vector<SampledToken> tokens;
  absl::Status status;  // Internal if a row's logits are unusable
};

// Some tokens of one sequence: a chunk of its prompt, or its latest token.
struct PlanItem {
  absl::Span<const TokenId> tokens;  // empty if `follows` is set, else at least one
  int first_position = 0;            // absolute position of tokens[0]
  absl::Span<const BlockId> blocks;  // in token order, up to the last token's block
  // Options for sampling the token after this item. Null if no token is wanted, for example for a
  // chunk that is not the last one of its prompt.
  const SamplingOptions* sampling = nullptr;
  int original_prompt_tokens = 0;  // prompt length; min_tokens counts the tokens after it
  // All tokens so far, `tokens` included. Required if sampling->LooksBack(), which is true if the
  // next token depends on earlier ones.
  const TokenHistory* history = nullptr;
  PromptScores* scores = nullptr;  // receives the prompt's logprobs; null: not wanted
  // The length up to which the sequence's rotary table applies (RopeReach in rope_config.h). All KV
  // of the sequence is computed with this table. 0 if the sequence ends with this item: the engine
  // then uses the table for the sequence's length.
  int rope_reach = 0;
  // Unique number of this sequence, never used for another one. The device needs it to count tokens
  // for penalties. If it is 0, tokens with penalties are sampled on the host.
  uint64_t sequence = 0;
  // Index of an item of the previous step. The token sampled for that item is used instead of
  // `tokens`, before the host knows it: the previous step is started but not finished. The previous
  // step must sample that token on the device (SamplesOnDevice).
  std::optional<int> follows;
};

// The work of one step. Holds views, whose data must live until Start returns. For items that are
// sampled on the host, `sampling` and `history` must live until Finish returns.
struct StepPlan {
  std::vector<PlanItem> items;
};

// Runs steps: a plan in, tokens out. Used by prefill and decode workers. One thread.
//
// If the backend samples tokens, a step can be started before the previous step is finished. The
// sampled token then stays on the device, and the next step begins with it, so the host is one step
// behind. The tokens do not depend on where they are sampled or when their step was started.
class Engine {
 public:
  // One entry for each item with `sampling`, in the order of the items: a token, or the error of
  // Sampler::Sample (Internal if the logits are NaN). An error concerns only its own sequence.
  using Tokens = std::vector<absl::StatusOr<SampledToken>>;
  // Max steps that are started and not finished.
  static constexpr int kMaxSteps = Backend::kMaxSteps;

  // Reserves the memory that steps of up to `max` need. Returns ResourceExhausted if it does not
  // fit. `model`, `backend` and the memory of `kv` must outlive the engine. `kv` must have the
  // layout of this model.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Model* model, Backend* backend,
                                                        const KvView& kv, const StepSize& max);
  // Waits for the running steps.
  ~Engine();

  // Starts a step that writes the KV of all items into the pool. If the backend samples tokens,
  // Start may return before the step has run: until Finish, the step's blocks must stay with their
  // sequences. With other backends, the step has run when Start returns. After an error the step
  // does not count as started, and the KV that it should have written is undefined. Returns
  // InvalidArgument for a plan that can't be run or has an item with PlanItem::scores, and
  // FailedPrecondition if kMaxSteps are running.
  absl::Status Start(const StepPlan& plan);
  // Waits for the oldest running step and returns its tokens, or its error if the step failed. The
  // step is finished in either case. After a failure, items of the next step that follow an item of
  // the failed step give undefined tokens. Returns FailedPrecondition if no step is running.
  absl::StatusOr<Tokens> Finish();
  int running() const { return running_; }

  // Starts and finishes one step; no other step may be running. An empty plan does nothing.
  // `layer_done` is described at ForwardPass::Run. With `layer_done` or `scores`, all tokens are
  // sampled on the host.
  absl::StatusOr<Tokens> Run(const StepPlan& plan, const LayerDone& layer_done = nullptr);

  // True if the backend samples tokens and the model's vocabulary is not too large for it.
  bool samples() const { return samples_; }
  // Returns true if the device can sample a token under these options. The next step may then use
  // the token before the host knows it (PlanItem::follows). With penalties, PlanItem::sequence must
  // also be set. Returns false for bad words of several tokens. Also returns false for penalties if
  // the sequence may hold more than kMaxHistoryTokens different tokens.
  bool SamplesOnDevice(const SamplingOptions& sampling, int original_prompt_tokens) const;

  // Sets the pulse, a counter that shows that the engine makes progress; may be null. The engine
  // increments it with Beat() for every layer handed to the device, and for every few prompt rows
  // whose logprobs are computed. In a step with a chunk of a prompt, Finish also increments it for
  // every layer that the device has completed. The pulse must outlive the engine.
  void set_pulse(Pulse* pulse) { pulse_ = pulse; }

  int max_rows() const { return forward_->max_rows(); }
  uint64_t steps() const { return steps_; }  // steps started

 private:
  // Describes how the token of one item is sampled, and its place in the answer.
  struct Sample {
    const SamplingOptions* sampling = nullptr;  // null: sampled on the device
    const TokenHistory* history = nullptr;
    int position = 0;
    int generated = 0;
    bool logprob = false;
  };
  // Results of a running step. Reused for later steps, to keep its memory.
  struct Results {
    std::vector<Sample> samples;
    std::vector<int> sample_of_item;  // per item: index into `samples`, or -1
    std::shared_ptr<float[]> memory;  // logits that the host samples from
    size_t capacity = 0;              // size of `memory` in floats
    std::vector<BackendSample> sampled;
  };

  Engine(const Model* model, Backend* backend, const KvView& kv,
         std::unique_ptr<ForwardPass> forward);
  Results& ResultsOf(uint64_t step) { return results_[step % kMaxSteps]; }
  absl::Status Gather(const StepPlan& plan, bool on_device, Results* results);
  bool SamplesOnDevice(const PlanItem& item) const;
  absl::StatusOr<int> FollowedRow(const PlanItem& item);
  absl::Status Grow(Results* results, size_t floats);
  absl::StatusOr<ForwardResults> MakeRoom(Results* results);
  absl::StatusOr<Tokens> RunAtOnce(const StepPlan& plan, const LayerDone& layer_done);
  Tokens TokensOf(Results* results);
  absl::Status Score(const PlanItem& item, int first_row);

  const Model* model_;
  Backend* const backend_;
  const bool samples_;
  const KvView kv_;
  const std::unique_ptr<ForwardPass> forward_;
  Sampler sampler_;
  Pulse* pulse_ = nullptr;
  uint64_t steps_ = 0;
  int running_ = 0;
  std::array<Results, kMaxSteps> results_;
  PlanRows rows_;  // rows of the step that is being started
  std::vector<float> few_logits_;
};

}  // namespace baton
