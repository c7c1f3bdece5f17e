#include "kernels/cuda/step_samples.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

SamplingOptions OptionsOf(const SampleOptions& sample) {
  SamplingOptions options;
  options.temperature = sample.temperature;
  options.top_p = sample.top_p;
  options.top_k = sample.top_k;
  options.min_p = sample.min_p;
  options.seed = sample.seed;
  options.answer_index = sample.answer_index;
  options.logit_bias.assign(sample.logit_bias.begin(), sample.logit_bias.end());
  options.stop_tokens.assign(sample.stop_tokens.begin(), sample.stop_tokens.end());
  options.min_tokens = sample.min_tokens;
  // Banned tokens become bad words of one token each. There may be at most kMaxBadWords bad words,
  // so further banned tokens become stop tokens. min_tokens, which forbids stop tokens in shorter
  // answers, is set to a number that no answer reaches.
  for (const TokenId id : sample.banned) {
    if (options.bad_words.size() < SamplingOptions::kMaxBadWords) {
      options.bad_words.push_back({id});
    } else {
      options.stop_tokens.push_back(id);
      options.min_tokens = std::numeric_limits<int>::max();
    }
  }
  if (sample.alternatives >= 0) options.logprobs = sample.alternatives;
  options.repetition_penalty = sample.repetition_penalty;
  options.presence_penalty = sample.presence_penalty;
  options.frequency_penalty = sample.frequency_penalty;
  return options;
}

bool Same(const SampleOptions& a, const SampleOptions& b) {
  return a.seed == b.seed && a.answer_index == b.answer_index && a.temperature == b.temperature &&
         a.top_p == b.top_p && a.top_k == b.top_k && a.min_p == b.min_p &&
         a.alternatives == b.alternatives && a.repetition_penalty == b.repetition_penalty &&
         a.presence_penalty == b.presence_penalty && a.frequency_penalty == b.frequency_penalty &&
         a.min_tokens == b.min_tokens && a.logit_bias == b.logit_bias && a.banned == b.banned &&
         a.stop_tokens == b.stop_tokens;
}

bool CanSampleFrom(int vocab) { return vocab >= 1 && vocab <= kMaxSampleVocab; }

DeviceSamplerOptions SizesFor(int rows, int vocab) {
  return {.vocab = vocab,
          .max_rows = rows,
          .slots = 2 * rows,  // so that sequences of the previous step still have their slots
          .history_tokens = std::min(kMaxHistoryTokens, vocab)};
}

}  // namespace

void StepSamples::Slot::Keep(const SampleOptions& of) {
  bias.assign(of.logit_bias.begin(), of.logit_bias.end());
  banned.assign(of.banned.begin(), of.banned.end());
  stop_tokens.assign(of.stop_tokens.begin(), of.stop_tokens.end());
  sample = of;
  sample.logit_bias = bias;
  sample.banned = banned;
  sample.stop_tokens = stop_tokens;
  sample.history = nullptr;
}

absl::Status StepSamples::CheckFollows(const StepArgs& step) const {
  for (size_t row = 0; row < step.follows.size(); ++row) {
    const int follows = step.follows[row];
    if (follows < 0) continue;
    if (follows < static_cast<int>(latest_.size()) && latest_[follows]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step: row ", row, " follows logit row ", follows,
                     " of the step before, which sampled nothing from it"));
  }
  return absl::OkStatus();
}

std::vector<size_t> StepSamples::Allocations(int rows, int vocab) {
  if (!CanSampleFrom(vocab)) return {};
  std::vector<size_t> allocations = DeviceSampler::Allocations(SizesFor(rows, vocab));
  allocations.push_back(rows * sizeof(int32_t));
  return allocations;
}

absl::Status StepSamples::Reserve(int rows, int vocab) {
  if (!CanSampleFrom(vocab) || (vocab == vocab_ && rows <= max_rows_)) return absl::OkStatus();
  sampler_ = nullptr;  // frees the old sampler's memory before the new sampler is created
  max_rows_ = 0;
  latest_.clear();
  return Create(rows, vocab);
}

absl::Status StepSamples::Create(int rows, int vocab) {
  DeviceSamplerOptions options = SizesFor(rows, vocab);
  options.runtime = runtime_;
  options.stream = stream_;
  options.kernels = kernels_;
  ASSIGN_OR_RETURN(auto sampler, DeviceSampler::Create(options));
  RETURN_IF_ERROR(tokens_.AtLeast(rows * sizeof(int32_t)).status());
  sampler_ = std::move(sampler);
  ++samplers_;
  vocab_ = vocab;
  max_rows_ = rows;
  slots_.assign(options.slots, {});
  return absl::OkStatus();
}

// Returns true if the slot has everything that sampling the sequence's next token needs.
bool StepSamples::Knows(const Slot& slot, const SampleOptions& sample) const {
  return slot.joined && slot.sample.sequence == sample.sequence &&
         (sample.sequence == 0 || slot.next_position == sample.position) &&
         Same(slot.sample, sample);
}

// Returns a slot that has the sequence already, or else the slot whose last use is longest ago.
absl::StatusOr<int> StepSamples::SlotFor(const SampleOptions& sample, bool follows) {
  int place = -1;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.step == step_) continue;
    const bool knows = Knows(slot, sample);
    if (knows || place < 0 || slot.step < slots_[place].step) place = static_cast<int>(i);
    if (knows) break;
  }
  Slot& slot = slots_[place];  // found, because there are more slots than rows in a step
  if (!Knows(slot, sample)) {
    if (sample.sequence != 0 && follows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step: sequence ", sample.sequence, " is to be sampled for at position ", sample.position,
          ", and the step before did not sample the token before that"));
    }
    slot.joined = false;
    RETURN_IF_ERROR(sampler_->Join(place, OptionsOf(sample), sample.history));
    slot.Keep(sample);
    slot.joined = true;
  }
  slot.step = step_;
  slot.next_position = sample.position + 1;
  return place;
}

absl::Status StepSamples::Prepare(const StepArgs& step, int recorded_rows) {
  ++step_;
  RETURN_IF_ERROR(CheckFollows(step));
  sampled_.clear();
  for (const SampleOptions* sample : step.samples) sampled_.push_back(sample != nullptr);
  fetches_ = std::count(sampled_.begin(), sampled_.end(), true) > 0;
  if (fetches_ && sampler_ == nullptr) RETURN_IF_ERROR(Create(step.max_rows, step.vocab));
  const int rows = std::max(recorded_rows, static_cast<int>(step.logit_rows.size()));
  const bool has_room = step.vocab == vocab_ && rows <= max_rows_;
  if (fetches_ && !has_room) {
    return absl::InvalidArgumentError(absl::StrCat("step: samples from ", rows, " rows of ",
                                                   step.vocab, " logits; expected ", max_rows_,
                                                   " at most, of ", vocab_));
  }
  enqueues_ = fetches_ || (recorded_rows > 0 && has_room);
  if (!enqueues_) return absl::OkStatus();
  rows_.assign(step.logit_rows.size(), {});
  for (size_t i = 0; i < step.samples.size(); ++i) {
    if (step.samples[i] == nullptr) continue;
    const bool follows = !step.follows.empty() && step.follows[step.logit_rows[i]] >= 0;
    ASSIGN_OR_RETURN(const auto slot, SlotFor(*step.samples[i], follows));
    rows_[i] = {.slot = slot,
                .position = step.samples[i]->position,
                .generated = step.samples[i]->generated};
  }
  ASSIGN_OR_RETURN(const auto needs, sampler_->Prepare(rows_));
  needs_ = needs;
  return absl::OkStatus();
}

void StepSamples::Drop(bool is_put) {
  for (Slot& slot : slots_) {
    if (slot.step == step_) slot.joined = false;
  }
  if (is_put) latest_.clear();
}

absl::Status StepSamples::Enqueue(float* logits, int rows) {
  if (!enqueues_) return absl::OkStatus();
  return sampler_->Enqueue(logits, const_cast<int32_t*>(tokens()), rows, needs_);
}

absl::Status StepSamples::Fetch() {
  if (fetches_) RETURN_IF_ERROR(sampler_->Fetch());
  latest_ = sampled_;
  return absl::OkStatus();
}

absl::Status StepSamples::Take(absl::Span<BackendSample> sampled) {
  ASSIGN_OR_RETURN(auto taken, sampler_->Take());
  size_t next = 0;
  for (const auto& token : taken) {
    if (token.status().code() == absl::StatusCode::kFailedPrecondition) continue;  // a padding row
    BackendSample& to = sampled[next++];
    to = {};
    to.status = token.status();
    if (!token.ok()) continue;
    to.id = token->id;
    to.logprob = token->logprob.value_or(0);
    for (const TokenLogprob& other : token->top) to.top.emplace_back(other.id, other.logprob);
  }
  return absl::OkStatus();
}

void StepSamples::AppendMemory(std::vector<uint64_t>* memory) const {
  memory->push_back(reinterpret_cast<uintptr_t>(tokens()));
  memory->push_back(samplers_);
}

}  // namespace baton
