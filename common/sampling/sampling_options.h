#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/sampling.pb.h"
#include "common/base/types.h"

namespace baton {

// How one sequence's tokens are drawn and when it ends, everything decided: what workers act on.
// Text-free: stop strings stay in the router.
struct SamplingOptions {
  static constexpr int kMaxLogprobs = 20;
  static constexpr size_t kMaxStopTokens = 256;
  static constexpr size_t kMaxLogitBias = 1024;
  static constexpr size_t kMaxBadWords = 256;
  static constexpr size_t kMaxBadWordTokens = 1024;  // of one of them

  float temperature = 0;  // 0 is greedy
  float top_p = 1;
  int top_k = 0;  // 0 keeps all
  float min_p = 0;
  uint64_t seed = 0;
  int max_tokens = 0;  // generated, at least 1; counted from the original prompt
  int min_tokens = 0;  // no end or stop token is drawn before that many
  std::vector<TokenId>
      stop_tokens;  // stop ids of the request and, without ignore_eos, end tokens of the model
  std::optional<int> logprobs;   // alternatives per token; 0: the chosen token's alone
  float repetition_penalty = 1;  // of tokens in prompt and answer; 1 changes nothing
  float presence_penalty = 0;    // of tokens in the answer
  float frequency_penalty = 0;   // of tokens in the answer, for each time
  std::vector<std::pair<TokenId, float>> logit_bias;  // by id, each once
  // The last token of each can't be drawn where prompt and answer end in the others.
  std::vector<std::vector<TokenId>> bad_words;
  std::optional<int> prompt_logprobs;  // alternatives per token of the prompt, which is scored then
  uint32_t answer_index = 0;  // of the answers that a request wants: each has draws of its own

  // Whether what may be drawn depends on the tokens so far: Sampler then needs a TokenHistory.
  bool LooksBack() const;
};

// Checks ranges: InvalidArgument names field, value and range (NaN temperature, top_p outside (0,
// 1], ...). Fields that are not set keep the value that `defaults` has. Text (`stop`, `bad_words`)
// and what is not about one sequence (`n`) is left alone.
absl::StatusOr<SamplingOptions> SamplingFromProto(const v1::SamplingParams& params,
                                                  const SamplingOptions& defaults);

// Everything set, for the way to a worker; SamplingFromProto gives the same options back, but for
// the answer_index, which has a place of its own in requests to workers.
v1::SamplingParams SamplingToProto(const SamplingOptions& options);

}  // namespace baton
