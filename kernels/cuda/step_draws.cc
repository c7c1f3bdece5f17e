#include "kernels/cuda/step_draws.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

SamplingOptions OptionsOf(const DrawOptions& draw) {
  SamplingOptions options;
  options.temperature = draw.temperature;
  options.top_p = draw.top_p;
  options.top_k = draw.top_k;
  options.min_p = draw.min_p;
  options.seed = draw.seed;
  options.answer_index = draw.answer_index;
  options.logit_bias.assign(draw.logit_bias.begin(), draw.logit_bias.end());
  options.stop_tokens.assign(draw.stop_tokens.begin(), draw.stop_tokens.end());
  options.min_tokens = draw.min_tokens;
  // Banned tokens become bad words of one token each. If there are too many for bad words, the rest
  // become stop tokens that always come too early.
  for (const TokenId id : draw.banned) {
    if (options.bad_words.size() < SamplingOptions::kMaxBadWords) {
      options.bad_words.push_back({id});
    } else {
      options.stop_tokens.push_back(id);
      options.min_tokens = std::numeric_limits<int>::max();
    }
  }
  if (draw.alternatives >= 0) options.logprobs = draw.alternatives;
  options.repetition_penalty = draw.repetition_penalty;
  options.presence_penalty = draw.presence_penalty;
  options.frequency_penalty = draw.frequency_penalty;
  return options;
}

bool Same(const DrawOptions& a, const DrawOptions& b) {
  return a.seed == b.seed && a.answer_index == b.answer_index && a.temperature == b.temperature &&
         a.top_p == b.top_p && a.top_k == b.top_k && a.min_p == b.min_p &&
         a.alternatives == b.alternatives && a.repetition_penalty == b.repetition_penalty &&
         a.presence_penalty == b.presence_penalty && a.frequency_penalty == b.frequency_penalty &&
         a.min_tokens == b.min_tokens && a.logit_bias == b.logit_bias && a.banned == b.banned &&
         a.stop_tokens == b.stop_tokens;
}

bool CanDrawFrom(int vocab) { return vocab >= 1 && vocab <= kMostDrawVocab; }

DeviceSamplerOptions SizesFor(int rows, int vocab) {
  return {.vocab = vocab,
          .max_rows = rows,
          .slots = 2 * rows,  // so that sequences of the step before still have their slots
          .history_tokens = std::min(kMostHistoryTokens, vocab)};
}

}  // namespace

void StepDraws::Slot::Keep(const DrawOptions& of) {
  bias.assign(of.logit_bias.begin(), of.logit_bias.end());
  banned.assign(of.banned.begin(), of.banned.end());
  stop_tokens.assign(of.stop_tokens.begin(), of.stop_tokens.end());
  draw = of;
  draw.logit_bias = bias;
  draw.banned = banned;
  draw.stop_tokens = stop_tokens;
  draw.history = nullptr;
}

absl::Status StepDraws::CheckFollows(const StepArgs& step) const {
  for (size_t row = 0; row < step.follows.size(); ++row) {
    const int follows = step.follows[row];
    if (follows < 0) continue;
    if (follows < static_cast<int>(latest_.size()) && latest_[follows]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step: row ", row, " follows logit row ", follows,
                     " of the step before, which drew nothing from it"));
  }
  return absl::OkStatus();
}

std::vector<size_t> StepDraws::Allocations(int rows, int vocab) {
  if (!CanDrawFrom(vocab)) return {};
  std::vector<size_t> allocations = DeviceSampler::Allocations(SizesFor(rows, vocab));
  allocations.push_back(rows * sizeof(int32_t));
  return allocations;
}

absl::Status StepDraws::Reserve(int rows, int vocab) {
  if (!CanDrawFrom(vocab) || (vocab == vocab_ && rows <= most_rows_)) return absl::OkStatus();
  sampler_ = nullptr;  // frees its memory before the next one takes its own
  most_rows_ = 0;
  latest_.clear();
  return Create(rows, vocab);
}

absl::Status StepDraws::Create(int rows, int vocab) {
  DeviceSamplerOptions options = SizesFor(rows, vocab);
  options.runtime = runtime_;
  options.stream = stream_;
  options.kernels = kernels_;
  ASSIGN_OR_RETURN(auto sampler, DeviceSampler::Create(options));
  RETURN_IF_ERROR(tokens_.AtLeast(rows * sizeof(int32_t)).status());
  sampler_ = std::move(sampler);
  ++samplers_;
  vocab_ = vocab;
  most_rows_ = rows;
  slots_.assign(options.slots, {});
  return absl::OkStatus();
}

// Returns true if the slot has all that is needed to draw the sequence's next token.
bool StepDraws::Knows(const Slot& slot, const DrawOptions& draw) const {
  return slot.joined && slot.draw.sequence == draw.sequence &&
         (draw.sequence == 0 || slot.next_position == draw.position) && Same(slot.draw, draw);
}

// Returns a slot that has the sequence already, or else the slot that was not used for longest.
absl::StatusOr<int> StepDraws::SlotFor(const DrawOptions& draw, bool follows) {
  int place = -1;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.step == step_) continue;
    const bool knows = Knows(slot, draw);
    if (knows || place < 0 || slot.step < slots_[place].step) place = static_cast<int>(i);
    if (knows) break;
  }
  Slot& slot = slots_[place];  // found, because there are more slots than rows in a step
  if (!Knows(slot, draw)) {
    if (draw.sequence != 0 && follows) {
      return absl::InvalidArgumentError(
          absl::StrCat("step: sequence ", draw.sequence, " is to be drawn for at position ",
                       draw.position, ", and the step before did not draw the token before that"));
    }
    slot.joined = false;
    RETURN_IF_ERROR(sampler_->Join(place, OptionsOf(draw), draw.history));
    slot.Keep(draw);
    slot.joined = true;
  }
  slot.step = step_;
  slot.next_position = draw.position + 1;
  return place;
}

absl::Status StepDraws::Prepare(const StepArgs& step, int recorded_rows) {
  ++step_;
  RETURN_IF_ERROR(CheckFollows(step));
  drawn_.clear();
  for (const DrawOptions* draw : step.draws) drawn_.push_back(draw != nullptr);
  fetches_ = std::count(drawn_.begin(), drawn_.end(), true) > 0;
  if (fetches_ && sampler_ == nullptr) RETURN_IF_ERROR(Create(step.max_rows, step.vocab));
  const int rows = std::max(recorded_rows, static_cast<int>(step.logit_rows.size()));
  const bool has_room = step.vocab == vocab_ && rows <= most_rows_;
  if (fetches_ && !has_room) {
    return absl::InvalidArgumentError(absl::StrCat("step: draws from ", rows, " rows of ",
                                                   step.vocab, " logits; expected ", most_rows_,
                                                   " at most, of ", vocab_));
  }
  enqueues_ = fetches_ || (recorded_rows > 0 && has_room);
  if (!enqueues_) return absl::OkStatus();
  rows_.assign(step.logit_rows.size(), {});
  for (size_t i = 0; i < step.draws.size(); ++i) {
    if (step.draws[i] == nullptr) continue;
    const bool follows = !step.follows.empty() && step.follows[step.logit_rows[i]] >= 0;
    ASSIGN_OR_RETURN(const auto slot, SlotFor(*step.draws[i], follows));
    rows_[i] = {
        .slot = slot, .position = step.draws[i]->position, .generated = step.draws[i]->generated};
  }
  ASSIGN_OR_RETURN(const auto needs, sampler_->Prepare(rows_));
  needs_ = needs;
  return absl::OkStatus();
}

void StepDraws::Drop(bool is_put) {
  for (Slot& slot : slots_) {
    if (slot.step == step_) slot.joined = false;
  }
  if (is_put) latest_.clear();
}

absl::Status StepDraws::Enqueue(float* logits, int rows) {
  if (!enqueues_) return absl::OkStatus();
  return sampler_->Enqueue(logits, const_cast<int32_t*>(tokens()), rows, needs_);
}

absl::Status StepDraws::Fetch() {
  if (fetches_) RETURN_IF_ERROR(sampler_->Fetch());
  latest_ = drawn_;
  return absl::OkStatus();
}

absl::Status StepDraws::Take(absl::Span<DrawnToken> drawn) {
  ASSIGN_OR_RETURN(auto taken, sampler_->Take());
  size_t next = 0;
  for (const auto& token : taken) {
    if (token.status().code() == absl::StatusCode::kFailedPrecondition) continue;  // a padding row
    DrawnToken& to = drawn[next++];
    to = {};
    to.status = token.status();
    if (!token.ok()) continue;
    to.id = token->id;
    to.logprob = token->logprob.value_or(0);
    for (const TokenLogprob& other : token->top) to.top.emplace_back(other.id, other.logprob);
  }
  return absl::OkStatus();
}

void StepDraws::AppendMemory(std::vector<uint64_t>* memory) const {
  memory->push_back(reinterpret_cast<uintptr_t>(tokens()));
  memory->push_back(samplers_);
}

}  // namespace baton
