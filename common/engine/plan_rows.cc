#include "common/engine/plan_rows.h"

namespace baton {

void PlanRows::Clear(size_t sequences) {
  tokens_.clear();
  sequences_.clear();
  follows_.clear();
  logit_rows_.clear();
  rope_reach_.clear();
  samples_.clear();
  options_.clear();
  options_.reserve(sequences);  // samples_ points to the options, so they must not move
  if (banned_.size() < sequences) {
    biases_.resize(sequences);
    banned_.resize(sequences);
    stop_tokens_.resize(sequences);
  }
}

void PlanRows::Add(absl::Span<const TokenId> tokens, int first_position,
                   absl::Span<const BlockId> blocks, int rope_reach) {
  sequences_.push_back({.first_row = static_cast<int>(tokens_.size()),
                        .rows = static_cast<int>(tokens.size()),
                        .first_position = first_position,
                        .blocks = blocks});
  rope_reach_.push_back(rope_reach);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void PlanRows::AddFollowing(int logit_row, int position, absl::Span<const BlockId> blocks,
                            int rope_reach) {
  follows_.resize(tokens_.size(), -1);
  follows_.push_back(logit_row);
  constexpr TokenId kUnknown = 0;
  Add({&kUnknown, 1}, position, blocks, rope_reach);
}

void PlanRows::WantLogits() {
  logit_rows_.push_back(static_cast<int>(tokens_.size()) - 1);
  samples_.push_back(nullptr);
}

void PlanRows::SampleOnDevice(const SamplingOptions& sampling, int position, int generated,
                              int vocab, uint64_t sequence, const TokenHistory* history) {
  WantLogits();
  Biases& biases = biases_[options_.size()];
  std::vector<TokenId>& banned = banned_[options_.size()];
  std::vector<TokenId>& stop_tokens = stop_tokens_[options_.size()];
  biases.clear();
  banned.clear();
  stop_tokens.clear();
  // Ids outside the vocabulary have no effect, as in Sampler.
  const auto is_token = [vocab](TokenId id) { return id >= 0 && id < vocab; };
  for (const auto& bias : sampling.logit_bias) {
    if (is_token(bias.first)) biases.push_back(bias);
  }
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (is_token(word.back())) banned.push_back(word.back());
  }
  if (sampling.min_tokens > 0) {
    for (const TokenId id : sampling.stop_tokens) {
      if (is_token(id)) stop_tokens.push_back(id);
    }
  }
  options_.push_back({.temperature = sampling.temperature,
                      .top_p = sampling.top_p,
                      .top_k = sampling.top_k,
                      .min_p = sampling.min_p,
                      .seed = sampling.seed,
                      .answer_index = sampling.answer_index,
                      .position = position,
                      .logit_bias = biases,
                      .banned = banned,
                      .stop_tokens = stop_tokens,
                      .min_tokens = sampling.min_tokens,
                      .generated = generated,
                      .alternatives = sampling.logprobs.value_or(-1)});
  if (sampling.LooksBack()) {
    SampleOptions& sample = options_.back();
    sample.sequence = sequence;
    sample.repetition_penalty = sampling.repetition_penalty;
    sample.presence_penalty = sampling.presence_penalty;
    sample.frequency_penalty = sampling.frequency_penalty;
    sample.history = history;
  }
  samples_.back() = &options_.back();
}

ForwardBatch PlanRows::Batch() {
  if (!follows_.empty()) follows_.resize(tokens_.size(), -1);
  if (options_.empty()) samples_.clear();
  return {.tokens = tokens_,
          .sequences = sequences_,
          .logit_rows = logit_rows_,
          .follows = follows_,
          .samples = samples_,
          .rope_reach = rope_reach_};
}

}  // namespace baton
