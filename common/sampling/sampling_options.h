#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace baton {

namespace v1 {
class SamplingParams;  // baton/v1/sampling.pb.h
}

// Says how to sample one sequence's tokens and when to end it. All defaults are filled in, so
// workers act on these values alone. Contains no text: stop strings stay in the router.
struct SamplingOptions {
  static constexpr int kMaxLogprobs = 20;
  static constexpr size_t kMaxStopTokens = 256;
  static constexpr size_t kMaxLogitBias = 1024;
  static constexpr size_t kMaxBadWords = 256;
  static constexpr size_t kMaxBadWordTokens = 1024;  // tokens of one bad word

  float temperature = 0;  // 0: greedy
  float top_p = 1;
  int top_k = 0;  // 0: keeps all tokens
  float min_p = 0;
  uint64_t seed = 0;
  int max_tokens = 0;  // max generated tokens, at least 1; counted from the original prompt
  int min_tokens = 0;  // until this many tokens are generated, no end or stop token is sampled
  std::vector<TokenId>
      stop_tokens;  // stop ids of the request, and the model's end tokens unless ignore_eos is set
  std::optional<int> logprobs;   // alternatives per token; 0: only the chosen token
  float repetition_penalty = 1;  // for tokens in prompt and answer; 1: no change
  float presence_penalty = 0;    // for tokens in the answer
  float frequency_penalty = 0;   // for tokens in the answer, times their count
  std::vector<std::pair<TokenId, float>> logit_bias;  // ascending by id, each id once
  // Token lists. The last token of a list is banned wherever the sequence ends in the other tokens
  // of this list.
  std::vector<std::vector<TokenId>> bad_words;
  // Number of alternatives for each prompt token. If set, the prompt's own tokens get logprobs too.
  std::optional<int> prompt_logprobs;
  // Number of this answer among the answers to one request. Each answer has its own random numbers.
  uint32_t answer_index = 0;

  // Returns true if the allowed tokens depend on the tokens so far. Sampler then needs a
  // TokenHistory.
  bool LooksBack() const;
};

// Converts `params` and checks ranges. Returns InvalidArgument with field, value and range, for
// example for a NaN temperature or for top_p outside (0, 1]. Unset fields keep the value of
// `defaults`. Text (`stop`, `bad_words`) and fields that do not concern a single sequence (`n`) are
// ignored.
absl::StatusOr<SamplingOptions> SamplingFromProto(const v1::SamplingParams& params,
                                                  const SamplingOptions& defaults);

// Converts options to a message for a worker, with all fields set. SamplingFromProto converts the
// message back to the same options, except answer_index, which is a separate field in requests to
// workers.
v1::SamplingParams SamplingToProto(const SamplingOptions& options);

}  // namespace baton
