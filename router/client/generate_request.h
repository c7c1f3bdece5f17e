#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// What the command line asks of one generation. What is not set stays unset on the wire, so that
// the model's own defaults apply. Ranges are the router's to judge: it knows the model.
struct GenerateOptions {
  std::optional<std::string> text;       // exactly one of these two
  std::optional<std::string> token_ids;  // "1,2,3"
  bool parse_special = false;            // of the text
  std::optional<bool> add_special;       // of the text
  std::string request_id;
  std::string model;
  std::string mode;  // by name, or nothing
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tpot_ms;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  std::vector<std::string> stop;
  std::string stop_token_ids;  // "1,2,3", or nothing
  std::optional<bool> ignore_eos;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> prompt_logprobs;
  std::optional<uint32_t> n;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::string logit_bias;  // "5=-100,7=2.5", or nothing
  std::vector<std::string> bad_words;
  std::string bad_word_ids;  // "1,2;3", or nothing
};

// InvalidArgument, naming the flag and the value, for what can't be put on the wire.
absl::StatusOr<v1::GenerateRequest> MakeGenerateRequest(const GenerateOptions& options);

// "1, 2,3" as numbers; nothing gives none. InvalidArgument names `what` and the part that is no
// token id.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view what, absl::string_view list);

// InvalidArgument, naming `what`, for text that is not UTF-8.
absl::Status CheckUtf8(absl::string_view what, absl::string_view text);

}  // namespace baton
