#include "common/engine/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace baton {
namespace {

// Rows of logits in memory while a prompt is scored: 16 of 128k are 8 MiB.
constexpr int kScoredAtOnce = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Model* model, Backend* backend,
                                                       const KvView& kv, int max_rows) {
  auto forward = ForwardPass::Create(model, backend, max_rows);
  if (!forward.ok()) return forward.status();
  return std::unique_ptr<Engine>(new Engine(model, kv, *std::move(forward)));
}

Engine::Engine(const Model* model, const KvView& kv, std::unique_ptr<ForwardPass> forward)
    : model_(model), kv_(kv), forward_(std::move(forward)) {}

absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Engine::Run(
    const StepPlan& plan, const LayerDone& layer_done) {
  std::vector<absl::StatusOr<SampledToken>> sampled;
  if (plan.items.empty()) return sampled;
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  bool more_logits = false;
  rope_reach_.clear();
  for (const PlanItem& item : plan.items) {
    sequences_.push_back({.first_row = static_cast<int>(tokens_.size()),
                          .rows = static_cast<int>(item.tokens.size()),
                          .first_position = item.first_position,
                          .blocks = item.blocks});
    const int end = item.first_position + static_cast<int>(item.tokens.size());
    rope_reach_.push_back(item.rope_reach > 0
                              ? item.rope_reach
                              : RopeReach(model_->config().rope, item.original_prompt_tokens, end));
    tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
    more_logits |= item.scores != nullptr;
    if (item.sampling != nullptr) logit_rows_.push_back(static_cast<int>(tokens_.size()) - 1);
  }
  const size_t vocab = model_->config().vocab;
  if (logits_.size() < logit_rows_.size() * vocab) logits_.resize(logit_rows_.size() * vocab);
  const absl::Span<float> logits = absl::MakeSpan(logits_).subspan(0, logit_rows_.size() * vocab);
  const absl::Status ran = forward_->Run({.tokens = tokens_,
                                          .sequences = sequences_,
                                          .logit_rows = logit_rows_,
                                          .rope_reach = rope_reach_,
                                          .more_logits = more_logits},
                                         kv_, logits, layer_done);
  if (!ran.ok()) return ran;
  ++steps_;
  for (const PlanItem& item : plan.items) {
    if (item.sampling == nullptr) continue;
    const int position = item.first_position + static_cast<int>(item.tokens.size());
    sampled.push_back(sampler_.Sample(logits.subspan(sampled.size() * vocab, vocab), *item.sampling,
                                      position, position - item.original_prompt_tokens,
                                      item.history));
  }
  for (size_t i = 0; more_logits && i < plan.items.size(); ++i) {
    if (plan.items[i].scores == nullptr) continue;
    if (absl::Status s = Score(plan.items[i], sequences_[i].first_row); !s.ok()) return s;
  }
  return sampled;
}

absl::Status Engine::Score(const PlanItem& item, int first_row) {
  PromptScores& scores = *item.scores;
  const size_t vocab = model_->config().vocab;
  if (item.first_position == 0) scores.tokens.push_back({.id = scores.prompt[0], .position = 0});
  const int last = static_cast<int>(scores.prompt.size()) - 1;
  const int end = std::min(item.first_position + static_cast<int>(item.tokens.size()), last);
  few_logits_.resize(kScoredAtOnce * vocab);
  std::vector<int> rows;
  for (int position = item.first_position; position < end && scores.status.ok();
       position += static_cast<int>(rows.size())) {
    rows.resize(std::min(kScoredAtOnce, end - position));
    std::iota(rows.begin(), rows.end(), first_row + position - item.first_position);
    const auto logits = absl::MakeSpan(few_logits_).subspan(0, rows.size() * vocab);
    if (absl::Status s = forward_->MoreLogits(rows, logits); !s.ok()) return s;
    for (size_t i = 0; i < rows.size() && scores.status.ok(); ++i) {
      const int scored = position + static_cast<int>(i) + 1;
      auto token = sampler_.Score(logits.subspan(i * vocab, vocab), scores.prompt[scored], scored,
                                  scores.alternatives);
      if (token.ok()) {
        scores.tokens.push_back(*std::move(token));
      } else {
        scores.status = token.status();
      }
    }
    if (scores.progress) scores.progress();
  }
  return absl::OkStatus();
}

}  // namespace baton
