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

// The options of one generation. An option without a value is not sent, so that the model's own
// default applies. The router checks ranges, because it knows the model.
struct GenerateOptions {
  std::optional<std::string> text;       // Set exactly one of `text` and `token_ids`.
  std::optional<std::string> token_ids;  // Format: "1,2,3".
  bool parse_special = false;            // Applies to `text` only.
  std::optional<bool> add_special;       // Applies to `text` only.
  std::string request_id;
  std::string model;
  std::string cache_salt;
  std::optional<bool> prefix_cache;
  std::string mode;  // Name of a serving mode. Empty: not set.
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
  std::string stop_token_ids;  // Format: "1,2,3", or empty.
  std::optional<bool> ignore_eos;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> prompt_logprobs;
  std::optional<uint32_t> n;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::string logit_bias;  // Format: "5=-100,7=2.5", or empty.
  std::vector<std::string> bad_words;
  std::string bad_word_ids;  // Format: "1,2;3", or empty.
};

// Builds the request. Returns InvalidArgument, with the flag and its value, for a value that can't
// be put on the wire. Any thread.
absl::StatusOr<v1::GenerateRequest> MakeGenerateRequest(const GenerateOptions& options);

// Parses a list such as "1, 2,3"; an empty text gives an empty list. For a part that is not a token
// id, returns InvalidArgument with `what` and that part. Any thread.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view what, absl::string_view list);

// Returns InvalidArgument, with the name `what`, if `text` is not UTF-8. Any thread.
absl::Status CheckUtf8(absl::string_view what, absl::string_view text);

}  // namespace baton
