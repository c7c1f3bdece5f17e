#include "common/engine/engine.h"

#include <utility>

namespace baton {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Model* model, Backend* backend,
                                                       const KvView& kv, int max_rows) {
  if (RopeReach(model->config().rope, 1, 1) != kEndlessReach) {
    return absl::UnimplementedError(
        "rotary tables that depend on the length of a sequence (dynamic, longrope)");
  }
  auto forward = ForwardPass::Create(model, backend, max_rows);
  if (!forward.ok()) return forward.status();
  return std::unique_ptr<Engine>(new Engine(model, kv, *std::move(forward)));
}

Engine::Engine(const Model* model, const KvView& kv, std::unique_ptr<ForwardPass> forward)
    : model_(model), kv_(kv), forward_(std::move(forward)) {}

absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Engine::Run(
    const StepPlan& plan, const std::function<void(int layer)>& layer_done) {
  std::vector<absl::StatusOr<SampledToken>> sampled;
  if (plan.items.empty()) return sampled;
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  for (const PlanItem& item : plan.items) {
    sequences_.push_back({.first_row = static_cast<int>(tokens_.size()),
                          .rows = static_cast<int>(item.tokens.size()),
                          .first_position = item.first_position,
                          .blocks = item.blocks});
    tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
    if (item.sampling != nullptr) logit_rows_.push_back(static_cast<int>(tokens_.size()) - 1);
  }
  const size_t vocab = model_->config().vocab;
  if (logits_.size() < logit_rows_.size() * vocab) logits_.resize(logit_rows_.size() * vocab);
  const absl::Span<float> logits = absl::MakeSpan(logits_).subspan(0, logit_rows_.size() * vocab);
  const absl::Status ran =
      forward_->Run({.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_}, kv_,
                    logits, layer_done);
  if (!ran.ok()) return ran;
  ++steps_;
  for (const PlanItem& item : plan.items) {
    if (item.sampling == nullptr) continue;
    const int position = item.first_position + static_cast<int>(item.tokens.size());
    sampled.push_back(sampler_.Sample(logits.subspan(sampled.size() * vocab, vocab), *item.sampling,
                                      position, position - item.original_prompt_tokens,
                                      item.history));
  }
  return sampled;
}

}  // namespace baton
