#include "router/client/generate_request.h"

#include <simdjson.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view what, absl::string_view list) {
  std::vector<int32_t> ids;
  if (absl::StripAsciiWhitespace(list).empty()) return ids;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": '", part, "' in '", list.substr(0, 80), "' is no token id"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status CheckUtf8(absl::string_view what, absl::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": its ", text.size(), " bytes are not UTF-8"));
}

absl::StatusOr<v1::GenerateRequest> MakeGenerateRequest(const GenerateOptions& options) {
  if (options.text.has_value() == options.token_ids.has_value()) {
    return absl::InvalidArgumentError(options.text.has_value()
                                          ? "both a text and --token-ids were given"
                                          : "a prompt is needed: a text, '-' or --token-ids");
  }
  v1::GenerateRequest request;
  if (options.text.has_value()) {
    if (absl::Status status = CheckUtf8("the prompt", *options.text); !status.ok()) return status;
    request.set_text(*options.text);
  } else {
    const auto ids = ParseTokenIds("--token-ids", *options.token_ids);
    if (!ids.ok()) return ids.status();
    request.mutable_token_ids()->mutable_ids()->Add(ids->begin(), ids->end());
  }
  for (const auto& [what, value] :
       {std::pair{"--request-id", &options.request_id}, std::pair{"--model", &options.model}}) {
    if (absl::Status status = CheckUtf8(what, *value); !status.ok()) return status;
  }
  request.set_request_id(options.request_id);
  request.set_model(options.model);
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
  for (const std::string& stop : options.stop) {
    if (absl::Status status = CheckUtf8("--stop", stop); !status.ok()) return status;
    sampling.add_stop(stop);
  }
  const auto stop_ids = ParseTokenIds("--stop-token-ids", options.stop_token_ids);
  if (!stop_ids.ok()) return stop_ids.status();
  sampling.mutable_stop_token_ids()->Add(stop_ids->begin(), stop_ids->end());
  return request;
}

}  // namespace baton
