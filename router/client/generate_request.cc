#include "router/client/generate_request.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/rpc/serving_mode.h"

namespace baton {

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view what, absl::string_view list) {
  std::vector<int32_t> ids;
  if (absl::StripAsciiWhitespace(list).empty()) return ids;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": '", part, "' in '", list.substr(0, 80), "' is not a token id"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status CheckUtf8(absl::string_view what, absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": its ", text.size(), " bytes are not UTF-8"));
}

namespace {

absl::Status AddLogitBias(absl::string_view list, v1::SamplingParams* sampling) {
  if (absl::StripAsciiWhitespace(list).empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    int32_t id = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(sides.first, &id) || !absl::SimpleAtof(sides.second, &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias: '", part, "' in '", list.substr(0, 80),
                       "' is not TOKEN=BIAS, such as 17=-2.5; a bias takes -100 to 100"));
    }
    if (!sampling->mutable_logit_bias()->insert({id, bias}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias: token ", id, " occurs twice in '", list.substr(0, 80), "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status AddBadWordIds(absl::string_view list, v1::SamplingParams* sampling) {
  if (absl::StripAsciiWhitespace(list).empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(list, ';')) {
    ASSIGN_OR_RETURN(const auto ids, ParseTokenIds("--bad-word-ids", part));
    if (ids.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bad-word-ids: there is an empty sequence between two ; in '",
                       list.substr(0, 80), "'"));
    }
    sampling->add_bad_word_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> MakeGenerateRequest(const GenerateOptions& options) {
  if (options.text.has_value() == options.token_ids.has_value()) {
    return absl::InvalidArgumentError(
        options.text.has_value() ? "both a text and --token-ids were given; give one of them"
                                 : "a prompt is needed: a text, '-' or --token-ids");
  }
  v1::GenerateRequest request;
  if (options.text.has_value()) {
    RETURN_IF_ERROR(CheckUtf8("the prompt", *options.text));
    request.set_text(*options.text);
    request.set_parse_special(options.parse_special);
    if (options.add_special) request.set_add_special(*options.add_special);
  } else {
    if (options.parse_special || options.add_special.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.parse_special ? "--parse-special" : "--add-special",
                       " works only with a text, not with --token-ids; leave it out"));
    }
    ASSIGN_OR_RETURN(const auto ids, ParseTokenIds("--token-ids", *options.token_ids));
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  for (const auto& [what, value] :
       {std::pair{"--request-id", &options.request_id}, std::pair{"--model", &options.model},
        std::pair{"--cache-salt", &options.cache_salt}}) {
    RETURN_IF_ERROR(CheckUtf8(what, *value));
  }
  request.set_request_id(options.request_id);
  request.set_model(options.model);
  request.set_cache_salt(options.cache_salt);
  if (options.prefix_cache) request.set_prefix_cache(*options.prefix_cache);
  if (!options.mode.empty()) {
    const absl::StatusOr<v1::ServingMode> mode = ServingModeFromName(options.mode);
    if (!mode.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--mode is '", options.mode, "'; ", mode.status().message()));
    }
    request.set_mode(*mode);
  }
  if (options.slo_ttft_ms) request.mutable_slo()->set_ttft_ms(*options.slo_ttft_ms);
  if (options.slo_tpot_ms) request.mutable_slo()->set_tpot_ms(*options.slo_tpot_ms);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.top_p) sampling.set_top_p(*options.top_p);
  if (options.top_k) sampling.set_top_k(*options.top_k);
  if (options.min_p) sampling.set_min_p(*options.min_p);
  if (options.seed) sampling.set_seed(*options.seed);
  if (options.max_tokens) sampling.set_max_tokens(*options.max_tokens);
  if (options.min_tokens) sampling.set_min_tokens(*options.min_tokens);
  if (options.ignore_eos) sampling.set_ignore_eos(*options.ignore_eos);
  if (options.logprobs) sampling.set_logprobs(*options.logprobs);
  if (options.prompt_logprobs) sampling.set_prompt_logprobs(*options.prompt_logprobs);
  if (options.n) sampling.set_n(*options.n);
  if (options.repetition_penalty) sampling.set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling.set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling.set_frequency_penalty(*options.frequency_penalty);
  for (const std::string& stop : options.stop) {
    RETURN_IF_ERROR(CheckUtf8("--stop", stop));
    sampling.add_stop(stop);
  }
  for (const std::string& word : options.bad_words) {
    RETURN_IF_ERROR(CheckUtf8("--bad-word", word));
    sampling.add_bad_words(word);
  }
  RETURN_IF_ERROR(AddLogitBias(options.logit_bias, &sampling));
  RETURN_IF_ERROR(AddBadWordIds(options.bad_word_ids, &sampling));
  ASSIGN_OR_RETURN(const auto stop_ids, ParseTokenIds("--stop-token-ids", options.stop_token_ids));
  sampling.mutable_stop_token_ids()->Add(stop_ids.begin(), stop_ids.end());
  return request;
}

}  // namespace baton
