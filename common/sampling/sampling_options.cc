#include "common/sampling/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "baton/v1/sampling.pb.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr float kMaxTemperature = 100;
// Beyond these limits, a logit multiplied or divided by the penalty may overflow a float.
constexpr float kMinRepetition = 0.01f, kMaxRepetition = 100;
constexpr uint32_t kMaxCount = std::numeric_limits<int32_t>::max();

absl::Status OutOfRange(absl::string_view field, const absl::AlphaNum& value,
                        absl::string_view range) {
  return BadParameter(field, absl::StrCat(field, " is ", value.Piece(), "; it takes ", range));
}

absl::Status ReadPenalties(const v1::SamplingParams& params, SamplingOptions* options) {
  if (params.has_repetition_penalty()) {
    options->repetition_penalty = params.repetition_penalty();
    if (!(options->repetition_penalty >= kMinRepetition &&
          options->repetition_penalty <= kMaxRepetition)) {
      return OutOfRange("repetition_penalty", params.repetition_penalty(), "0.01 to 100");
    }
  }
  if (params.has_presence_penalty()) {
    options->presence_penalty = params.presence_penalty();
    if (!(std::abs(options->presence_penalty) <= 2))
      return OutOfRange("presence_penalty", params.presence_penalty(), "-2 to 2");
  }
  if (params.has_frequency_penalty()) {
    options->frequency_penalty = params.frequency_penalty();
    if (!(std::abs(options->frequency_penalty) <= 2))
      return OutOfRange("frequency_penalty", params.frequency_penalty(), "-2 to 2");
  }
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const v1::SamplingParams& params, SamplingOptions* options) {
  if (params.logit_bias_size() == 0) return absl::OkStatus();
  if (static_cast<size_t>(params.logit_bias_size()) > SamplingOptions::kMaxLogitBias) {
    return BadParameter(
        "logit_bias", absl::StrCat("logit_bias has ", params.logit_bias_size(), " tokens; at most ",
                                   SamplingOptions::kMaxLogitBias));
  }
  options->logit_bias.clear();
  for (const auto& [id, bias] :
       std::map<int32_t, float>(params.logit_bias().begin(), params.logit_bias().end())) {
    if (id < 0) {
      return BadParameter("logit_bias", absl::StrCat("logit_bias of token is ", id,
                                                     "; it takes ids of the vocabulary"));
    }
    if (!(std::abs(bias) <= 100))
      return OutOfRange(absl::StrCat("logit_bias[", id, "]"), bias, "-100 to 100");
    options->logit_bias.emplace_back(id, bias);
  }
  return absl::OkStatus();
}

absl::Status ReadBadWords(const v1::SamplingParams& params, SamplingOptions* options) {
  for (int i = 0; i < params.bad_word_ids_size(); ++i) {
    const auto& ids = params.bad_word_ids(i).ids();
    if (ids.empty() || static_cast<size_t>(ids.size()) > SamplingOptions::kMaxBadWordTokens) {
      return BadParameter("bad_word_ids", absl::StrCat("bad_word_ids[", i, "] has ", ids.size(),
                                                       " tokens; it takes 1 to ",
                                                       SamplingOptions::kMaxBadWordTokens));
    }
    for (const TokenId id : ids) {
      if (id < 0)
        return OutOfRange(absl::StrCat("bad_word_ids[", i, "]"), id, "ids of the vocabulary");
    }
    options->bad_words.emplace_back(ids.begin(), ids.end());
  }
  if (options->bad_words.size() > SamplingOptions::kMaxBadWords) {
    return BadParameter(
        "bad_word_ids",
        absl::StrCat("bad_word_ids and those of the model are ", options->bad_words.size(),
                     " together; at most ", SamplingOptions::kMaxBadWords));
  }
  return absl::OkStatus();
}

}  // namespace

bool SamplingOptions::LooksBack() const {
  return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 ||
         std::any_of(bad_words.begin(), bad_words.end(),
                     [](const std::vector<TokenId>& word) { return word.size() > 1; });
}

absl::StatusOr<SamplingOptions> SamplingFromProto(const v1::SamplingParams& params,
                                                  const SamplingOptions& defaults) {
  SamplingOptions options = defaults;
  if (params.has_temperature()) {
    options.temperature = params.temperature();
    // The comparison is negated, so that NaN is refused, too.
    if (!(options.temperature >= 0 && options.temperature <= kMaxTemperature)) {
      return OutOfRange("temperature", params.temperature(), "0 to 100");
    }
  }
  if (params.has_top_p()) {
    options.top_p = params.top_p();
    if (!(options.top_p > 0 && options.top_p <= 1))
      return OutOfRange("top_p", params.top_p(), "more than 0, up to 1");
  }
  if (params.has_top_k()) {
    if (params.top_k() > kMaxCount)
      return OutOfRange("top_k", params.top_k(), "0 (all) to 2147483647");
    options.top_k = static_cast<int>(params.top_k());
  }
  if (params.has_min_p()) {
    options.min_p = params.min_p();
    if (!(options.min_p >= 0 && options.min_p <= 1))
      return OutOfRange("min_p", params.min_p(), "0 to 1");
  }
  if (params.has_seed()) options.seed = params.seed();
  if (params.has_max_tokens()) {
    if (params.max_tokens() < 1 || params.max_tokens() > kMaxCount) {
      return OutOfRange("max_tokens", params.max_tokens(),
                        "1 up to what the model's context leaves");
    }
    options.max_tokens = static_cast<int>(params.max_tokens());
  }
  if (params.has_min_tokens()) {
    if (params.min_tokens() > kMaxCount)
      return OutOfRange("min_tokens", params.min_tokens(), "0 to max_tokens");
    options.min_tokens = static_cast<int>(params.min_tokens());
  }
  if (params.has_max_tokens() && !params.has_min_tokens()) {
    options.min_tokens = std::min(options.min_tokens, options.max_tokens);
  }
  if (options.min_tokens > options.max_tokens && params.has_max_tokens()) {
    return OutOfRange("min_tokens", options.min_tokens,
                      absl::StrCat("0 to max_tokens, ", options.max_tokens));
  }
  if (params.has_ignore_eos() && params.ignore_eos()) options.stop_tokens.clear();
  for (const TokenId id : params.stop_token_ids()) {
    if (id < 0) return OutOfRange("stop_token_ids", id, "ids of the vocabulary");
    options.stop_tokens.push_back(id);
  }
  if (options.stop_tokens.size() > SamplingOptions::kMaxStopTokens) {
    return BadParameter(
        "stop_token_ids",
        absl::StrCat("stop_token_ids and the model's end tokens are ", options.stop_tokens.size(),
                     " together; at most ", SamplingOptions::kMaxStopTokens));
  }
  if (params.has_logprobs()) {
    if (params.logprobs() > SamplingOptions::kMaxLogprobs)
      return OutOfRange("logprobs", params.logprobs(), "0 to 20");
    options.logprobs = static_cast<int>(params.logprobs());
  }
  if (params.has_prompt_logprobs()) {
    if (params.prompt_logprobs() > SamplingOptions::kMaxLogprobs)
      return OutOfRange("prompt_logprobs", params.prompt_logprobs(), "0 to 20");
    options.prompt_logprobs = static_cast<int>(params.prompt_logprobs());
  }
  RETURN_IF_ERROR(ReadPenalties(params, &options));
  RETURN_IF_ERROR(ReadLogitBias(params, &options));
  RETURN_IF_ERROR(ReadBadWords(params, &options));
  return options;
}

v1::SamplingParams SamplingToProto(const SamplingOptions& options) {
  v1::SamplingParams params;
  params.set_temperature(options.temperature);
  params.set_top_p(options.top_p);
  params.set_top_k(static_cast<uint32_t>(options.top_k));
  params.set_min_p(options.min_p);
  params.set_seed(options.seed);
  params.set_max_tokens(static_cast<uint32_t>(options.max_tokens));
  params.set_min_tokens(static_cast<uint32_t>(options.min_tokens));
  params.mutable_stop_token_ids()->Add(options.stop_tokens.begin(), options.stop_tokens.end());
  if (options.logprobs) params.set_logprobs(static_cast<uint32_t>(*options.logprobs));
  if (options.prompt_logprobs) {
    params.set_prompt_logprobs(static_cast<uint32_t>(*options.prompt_logprobs));
  }
  params.set_repetition_penalty(options.repetition_penalty);
  params.set_presence_penalty(options.presence_penalty);
  params.set_frequency_penalty(options.frequency_penalty);
  for (const auto& [id, bias] : options.logit_bias) (*params.mutable_logit_bias())[id] = bias;
  for (const std::vector<TokenId>& word : options.bad_words) {
    params.add_bad_word_ids()->mutable_ids()->Add(word.begin(), word.end());
  }
  return params;
}

}  // namespace baton
