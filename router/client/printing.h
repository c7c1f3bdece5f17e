#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"
#include "nlohmann/json.hpp"

namespace baton {

// How the answers to calls other than Generate are shown. Lines end in a newline.

// {"token_ids": [1, 2], "pieces": [{"text": "a", "bytes": [97]}, ...]}: bytes that form no
// character on their own are U+FFFD in `text`.
nlohmann::ordered_json TokensJson(const v1::TokenizeResponse& response);
// {"text": "Hi", "token_ids": [72, 105]}: the ids are those that were asked about.
nlohmann::ordered_json TextJson(const v1::DetokenizeRequest& request,
                                const v1::DetokenizeResponse& response);
// The bytes of a token as a quoted C string, in which whole UTF-8 characters stay as they are.
std::string QuotedPiece(absl::string_view piece);
// One line per token: its id, a tab, its bytes as a quoted C string.
std::string PieceLines(const v1::TokenizeResponse& response);
// {"models": [{name, architecture, context_tokens, vocab_size, fingerprint, numerics_id,
// prefill_workers, decode_workers}]}; of a router that tells them also serving,
// not_serving_because and unused_workers.
nlohmann::ordered_json ModelsJson(const v1::ListModelsResponse& response);
std::string ModelLines(const v1::ListModelsResponse& response);
// A line on why the model is not served, or one for each worker that is not used; empty where all
// is well. Each begins with `indent`.
std::string ReasonLines(const v1::Model& model, absl::string_view indent);

// The text without line breaks and tabs.
std::string OneLine(absl::string_view text);

// "UNAVAILABLE: message (router 127.0.0.1:50051)", on one line whatever the message holds.
std::string FailureLine(const absl::Status& status, absl::string_view router);

// JSON on one line. Bytes that are not UTF-8 become U+FFFD.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace baton
