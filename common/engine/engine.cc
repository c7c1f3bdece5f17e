#include "common/engine/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/pulse.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// If the device samples tokens, host memory at first has space for the logits of this number of
// rows per step. The memory grows if the host has to sample more rows.
constexpr int kHostSampledAtOnce = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Model* model, Backend* backend,
                                                       const KvView& kv, const StepSize& max) {
  ASSIGN_OR_RETURN(auto forward, ForwardPass::Create(model, backend, max.rows, max.context));
  std::unique_ptr<Engine> engine(new Engine(model, backend, kv, std::move(forward)));
  const StepLimits limits = max.LimitsFor(model->config(), kv.layout);
  RETURN_IF_ERROR(backend->Reserve(limits));
  // If the device samples, the host needs logits only for the few rows that the device can't
  // sample.
  const int rows =
      engine->samples_ ? std::min(limits.sequences, kHostSampledAtOnce) : limits.sequences;
  for (Results& results : engine->results_) {
    const size_t floats = size_t{1} * rows * limits.vocab;
    RETURN_IF_ERROR(engine->Grow(&results, floats));
  }
  return engine;
}

Engine::Engine(const Model* model, Backend* backend, const KvView& kv,
               std::unique_ptr<ForwardPass> forward)
    : model_(model),
      backend_(backend),
      samples_(backend->samples() && model->config().vocab <= backend->max_sample_vocab()),
      kv_(kv),
      forward_(std::move(forward)) {}

Engine::~Engine() {
  // Running steps still write to results_, so they must end first.
  for (; running_ > 0; --running_) forward_->Finish().IgnoreError();
}

bool Engine::SamplesOnDevice(const SamplingOptions& sampling, int original_prompt_tokens) const {
  if (!samples_ || !sampling.LooksBack()) return samples_;
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (word.size() > 1) return false;
  }
  const ModelConfig& config = model_->config();
  const int64_t longest = int64_t{original_prompt_tokens} + sampling.max_tokens;
  return std::min<int64_t>({longest, config.context, config.vocab}) <= kMaxHistoryTokens;
}

bool Engine::SamplesOnDevice(const PlanItem& item) const {
  return SamplesOnDevice(*item.sampling, item.original_prompt_tokens) &&
         (item.sequence != 0 || !item.sampling->LooksBack());
}

absl::Status Engine::Start(const StepPlan& plan) {
  if (running_ == kMaxSteps) {
    return absl::FailedPreconditionError(
        absl::StrCat("a step was to be started while ", running_, " are running"));
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (plan.items[i].scores == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("item ", i, " of a step that is started has scores"));
  }
  Results& results = ResultsOf(steps_);
  RETURN_IF_ERROR(Gather(plan, /*on_device=*/true, &results));
  ASSIGN_OR_RETURN(const auto room, MakeRoom(&results));
  ForwardBatch batch = rows_.Batch();
  batch.pulse = pulse_;
  RETURN_IF_ERROR(forward_->Start(batch, kv_, room));
  ++steps_;
  ++running_;
  return absl::OkStatus();
}

absl::StatusOr<Engine::Tokens> Engine::Finish() {
  if (running_ == 0) return absl::FailedPreconditionError("no step is running");
  Results& results = ResultsOf(steps_ - running_);
  const absl::Status finished = forward_->Finish();
  --running_;
  RETURN_IF_ERROR(finished);
  return TokensOf(&results);
}

absl::StatusOr<Engine::Tokens> Engine::Run(const StepPlan& plan, const LayerDone& layer_done) {
  if (running_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a step was to be run while ", running_, " are running"));
  }
  if (plan.items.empty()) return Tokens();
  const bool scored = std::any_of(plan.items.begin(), plan.items.end(),
                                  [](const PlanItem& item) { return item.scores != nullptr; });
  if (scored || layer_done || !samples_) return RunAtOnce(plan, layer_done);
  RETURN_IF_ERROR(Start(plan));
  return Finish();
}

absl::StatusOr<Engine::Tokens> Engine::RunAtOnce(const StepPlan& plan,
                                                 const LayerDone& layer_done) {
  // Always uses the same entry of results_. Here the host samples all tokens, so the memory for
  // their logits may become large, and only one entry should grow that much.
  Results& results = results_[0];
  RETURN_IF_ERROR(Gather(plan, /*on_device=*/false, &results));
  ASSIGN_OR_RETURN(const auto room, MakeRoom(&results));
  ForwardBatch batch = rows_.Batch();
  batch.pulse = pulse_;
  for (const PlanItem& item : plan.items) batch.more_logits |= item.scores != nullptr;
  RETURN_IF_ERROR(forward_->Run(batch, kv_, room.logits, layer_done));
  ++steps_;
  Tokens tokens = TokensOf(&results);
  for (size_t i = 0; batch.more_logits && i < plan.items.size(); ++i) {
    if (plan.items[i].scores == nullptr) continue;
    RETURN_IF_ERROR(Score(plan.items[i], rows_.first_row(i)));
  }
  return tokens;
}

// Collects the rows of all items in rows_, and stores in `results` how each item's token is
// sampled.
absl::Status Engine::Gather(const StepPlan& plan, bool on_device, Results* results) {
  results->samples.clear();
  results->sample_of_item.clear();
  rows_.Clear(plan.items.size());
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    const int rows = item.follows ? 1 : static_cast<int>(item.tokens.size());
    const int end = item.first_position + rows;
    const int reach = item.rope_reach > 0
                          ? item.rope_reach
                          : RopeReach(model_->config().rope, item.original_prompt_tokens, end);
    if (item.follows) {
      const absl::StatusOr<int> row = FollowedRow(item);
      if (!row.ok()) {
        return absl::Status(row.status().code(),
                            absl::StrCat("item ", i, " of a step ", row.status().message()));
      }
      rows_.AddFollowing(*row, item.first_position, item.blocks, reach);
    } else {
      rows_.Add(item.tokens, item.first_position, item.blocks, reach);
    }
    if (item.sampling == nullptr) {
      results->sample_of_item.push_back(-1);
      continue;
    }
    results->sample_of_item.push_back(static_cast<int>(results->samples.size()));
    Sample sample = {.sampling = item.sampling,
                     .history = item.history,
                     .position = end,
                     .generated = end - item.original_prompt_tokens,
                     .logprob = item.sampling->logprobs.has_value()};
    if (on_device && SamplesOnDevice(item)) {
      rows_.SampleOnDevice(*item.sampling, end, sample.generated, model_->config().vocab,
                           item.sequence, item.history);
      sample.sampling = nullptr;
    } else {
      rows_.WantLogits();
    }
    results->samples.push_back(sample);
  }
  return absl::OkStatus();
}

// Returns the logit row of the previous step that samples the token with which `item` begins.
absl::StatusOr<int> Engine::FollowedRow(const PlanItem& item) {
  if (running_ == 0)
    return absl::InvalidArgumentError("follows an item of the step before, and no step is running");
  const Results& before = ResultsOf(steps_ - 1);
  const int items = static_cast<int>(before.sample_of_item.size());
  if (*item.follows < 0 || *item.follows >= items) {
    return absl::InvalidArgumentError(
        absl::StrCat("follows item ", *item.follows, "; the step before has ", items));
  }
  const int row = before.sample_of_item[*item.follows];
  if (row < 0 || before.samples[row].sampling != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("follows item ", *item.follows, ", whose token the device does not sample"));
  }
  if (!item.tokens.empty() || item.first_position != before.samples[row].position) {
    return absl::InvalidArgumentError(absl::StrCat(
        "follows item ", *item.follows, ", whose token has position ", before.samples[row].position,
        "; it has ", item.tokens.size(), " tokens of its own from ", item.first_position));
  }
  return row;
}

absl::Status Engine::Grow(Results* results, size_t floats) {
  if (floats <= results->capacity) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto memory, backend_->AllocateResults(floats));
  results->memory = std::move(memory);
  results->capacity = floats;
  return absl::OkStatus();
}

absl::StatusOr<ForwardResults> Engine::MakeRoom(Results* results) {
  const size_t host = rows_.logit_rows() - rows_.sampled_on_device();
  const size_t vocab = model_->config().vocab, floats = host * vocab;
  if (results->capacity < floats) {
    // Doubles the capacity, so that a batch that grows row by row does not allocate at each step.
    const size_t max = static_cast<size_t>(max_rows()) * vocab;
    const size_t capacity = std::max(floats, std::min(2 * results->capacity, max));
    RETURN_IF_ERROR(Grow(results, capacity));
  }
  results->sampled.resize(rows_.sampled_on_device());
  return ForwardResults{.logits = {results->memory.get(), floats},
                        .sampled = absl::MakeSpan(results->sampled)};
}

Engine::Tokens Engine::TokensOf(Results* results) {
  Tokens tokens;
  tokens.reserve(results->samples.size());
  const size_t vocab = model_->config().vocab;
  float* logits = results->memory.get();
  auto sampled = results->sampled.begin();
  for (const Sample& sample : results->samples) {
    if (sample.sampling != nullptr) {
      tokens.push_back(sampler_.Sample({logits, vocab}, *sample.sampling, sample.position,
                                       sample.generated, sample.history));
      logits += vocab;
      continue;
    }
    const BackendSample& found = *sampled++;
    if (!found.status.ok()) {
      tokens.push_back(found.status);
      continue;
    }
    SampledToken token = {.id = found.id, .position = sample.position};
    if (sample.logprob) token.logprob = found.logprob;
    for (const auto& [id, logprob] : found.top) token.top.push_back({id, logprob});
    tokens.push_back(std::move(token));
  }
  return tokens;
}

absl::Status Engine::Score(const PlanItem& item, int first_row) {
  PromptScores& scores = *item.scores;
  const size_t vocab = model_->config().vocab;
  if (item.first_position == 0) scores.tokens.push_back({.id = scores.prompt[0], .position = 0});
  const int last = static_cast<int>(scores.prompt.size()) - 1;
  const int end = std::min(item.first_position + static_cast<int>(item.tokens.size()), last);
  constexpr int kScoredAtOnce = StepSize::kScoredAtOnce;
  few_logits_.resize(kScoredAtOnce * vocab);
  std::vector<int> rows;
  for (int position = item.first_position; position < end && scores.status.ok();
       position += static_cast<int>(rows.size())) {
    rows.resize(std::min(kScoredAtOnce, end - position));
    std::iota(rows.begin(), rows.end(), first_row + position - item.first_position);
    const auto logits = absl::MakeSpan(few_logits_).subspan(0, rows.size() * vocab);
    RETURN_IF_ERROR(forward_->MoreLogits(rows, logits));
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
    if (pulse_ != nullptr) pulse_->Beat();
  }
  return absl::OkStatus();
}

}  // namespace baton
