#pragma once

#include <cstdint>
#include <optional>
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

  float temperature = 0;  // 0 is greedy
  float top_p = 1;
  int top_k = 0;  // 0 keeps all
  float min_p = 0;
  uint64_t seed = 0;
  int max_tokens = 0;  // generated, at least 1; counted from the original prompt
  int min_tokens = 0;  // no end or stop token is drawn before that many
  std::vector<TokenId>
      stop_tokens;  // stop ids of the request and, without ignore_eos, end tokens of the model
  std::optional<int> logprobs;  // alternatives per token; 0: the chosen token's alone
};

// Checks ranges: InvalidArgument names field and value (NaN temperature, top_p outside (0, 1],
// ...). Fields that are not set keep the value that `defaults` has. Stop strings are left alone.
absl::StatusOr<SamplingOptions> SamplingFromProto(const v1::SamplingParams& params,
                                                  const SamplingOptions& defaults);

// Everything set, for the way to a worker; SamplingFromProto gives the same options back.
v1::SamplingParams SamplingToProto(const SamplingOptions& options);

}  // namespace baton
