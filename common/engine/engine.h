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
  absl::Status status;  // Internal once some row's logits were no numbers
};

// Some tokens of one sequence: a chunk of its prompt, or its latest token.
struct PlanItem {
  absl::Span<const TokenId> tokens;  // at least one, or none with `follows`
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
  // A number for this sequence that is never used again. 0: none, and with penalties the host
  // draws.
  uint64_t sequence = 0;
  // Instead of `tokens`: the one that this item of the step before draws, which is not known yet.
  // That step has been started and not finished, and draws it on the device (DrawsOnDevice).
  std::optional<int> follows;
};

// Which tokens of which sequences run in one step. Views: all must live until Start returns, and
// until Finish does `sampling` and `history` of items that are not drawn on the device.
struct StepPlan {
  std::vector<PlanItem> items;
};

// Runs steps: a plan in, tokens out. What both workers share. One thread.
//
// With a backend that draws, a step can be started before the one before it has been finished: what
// that draws stays on the device and is what the next one begins with, and the host is one step
// behind. Tokens are those of the plain way, whichever rows are drawn where.
class Engine {
 public:
  // One entry for each item with `sampling`, in order: a token, or Internal where that sequence's
  // logits are no numbers (the others are sound).
  using Tokens = std::vector<absl::StatusOr<SampledToken>>;
  // Started and not finished, at most.
  static constexpr int kMostSteps = Backend::kMostSteps;

  // All must outlive the engine; `kv` is laid out as the model says. Steps are no larger than
  // `most`, and what they need is taken here: ResourceExhausted when it does not fit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Model* model, Backend* backend,
                                                        const KvView& kv, const StepSize& most);
  // Waits for the steps that are running.
  ~Engine();

  // Starts a step that writes the KV of all items into the pool. A backend that draws may return
  // before it has run: until it is finished, its blocks stay with their sequences. Other backends
  // run it. After an error it does not count as started, and the KV of its positions is undefined.
  // InvalidArgument for a plan that can't be run, or has `scores`; FailedPrecondition beyond
  // kMostSteps.
  absl::Status Start(const StepPlan& plan);
  // Waits for the oldest step that was started. An error is that step's, which has ended all the
  // same; tokens that follow its are undefined. FailedPrecondition when there is none.
  absl::StatusOr<Tokens> Finish();
  int running() const { return running_; }

  // Start and Finish, while no step is running. An empty plan does nothing. `layer_done`: see
  // ForwardPass::Run. With it, or `scores`, all tokens are drawn on the host.
  absl::StatusOr<Tokens> Run(const StepPlan& plan, const LayerDone& layer_done = nullptr);

  // Whether the backend draws, from a vocabulary like the model's.
  bool draws() const { return draws_; }
  // Whether the device draws tokens under these options, of sequences that have a name where there
  // are penalties: then an item may follow one of them. Not with bad words of several tokens, nor
  // with penalties where there may be more than kMostHistoryTokens different tokens.
  bool DrawsOnDevice(const SamplingOptions& sampling, int original_prompt_tokens) const;

  // Beats while steps get on: with every layer that is put on the device, every one that Finish
  // sees done in a step of chunks, and every few rows that are scored. Outlives the engine; may be
  // null.
  void set_pulse(Pulse* pulse) { pulse_ = pulse; }

  int max_rows() const { return forward_->max_rows(); }
  uint64_t steps() const { return steps_; }  // started

 private:
  // How the token of one item is drawn, and what it is.
  struct Draw {
    const SamplingOptions* sampling = nullptr;  // null: drawn on the device
    const TokenHistory* history = nullptr;
    int position = 0;
    int generated = 0;
    bool logprob = false;
  };
  // What a running step leaves. Kept for its memory.
  struct Results {
    std::vector<Draw> draws;
    std::vector<int> draw_of_item;    // place in `draws`; -1: none
    std::shared_ptr<float[]> memory;  // of logits that the host draws from
    size_t capacity = 0;              // of it, floats
    std::vector<DrawnToken> drawn;
  };

  Engine(const Model* model, Backend* backend, const KvView& kv,
         std::unique_ptr<ForwardPass> forward);
  Results& ResultsOf(uint64_t step) { return results_[step % kMostSteps]; }
  absl::Status Gather(const StepPlan& plan, bool on_device, Results* results);
  bool DrawsOnDevice(const PlanItem& item) const;
  absl::StatusOr<int> FollowedRow(const PlanItem& item);
  absl::Status Grow(Results* results, size_t floats);
  absl::StatusOr<ForwardResults> MakeRoom(Results* results);
  absl::StatusOr<Tokens> RunAtOnce(const StepPlan& plan, const LayerDone& layer_done);
  Tokens TokensOf(Results* results);
  absl::Status Score(const PlanItem& item, int first_row);

  const Model* model_;
  Backend* const backend_;
  const bool draws_;
  const KvView kv_;
  const std::unique_ptr<ForwardPass> forward_;
  Sampler sampler_;
  Pulse* pulse_ = nullptr;
  uint64_t steps_ = 0;
  int running_ = 0;
  std::array<Results, kMostSteps> results_;
  PlanRows rows_;  // of the step that is being started
  std::vector<float> few_logits_;
};

}  // namespace baton
