#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"
#include "common/base/json.h"

namespace baton {

// Functions that format answers to the calls other than Generate. Each output line ends in a
// newline. Any thread.

// Returns {"token_ids": [1, 2], "pieces": [{"text": "a", "bytes": [97]}, ...]}. In `text`, bytes
// that form no character on their own are U+FFFD. If the model has no token for some bytes of the
// text, there is also "dropped_bytes": 3.
nlohmann::ordered_json TokensJson(const v1::TokenizeResponse& response);
// Returns a line that says how many bytes of the text have no token; empty if all have one.
std::string DroppedNote(const v1::TokenizeResponse& response);
// Returns {"text": "Hi", "token_ids": [72, 105]}. The ids are those in `request`.
nlohmann::ordered_json TextJson(const v1::DetokenizeRequest& request,
                                const v1::DetokenizeResponse& response);
// Returns the bytes of a token as a quoted C string, in which whole UTF-8 characters stay as they
// are.
std::string QuotedPiece(absl::string_view piece);
// Returns one line per token: its id, a tab, its bytes as a quoted C string.
std::string PieceLines(const v1::TokenizeResponse& response);
// Returns {"models": [{name, architecture, context_tokens, vocab_size, fingerprint, numerics_id,
// prefill_workers, decode_workers}]}. Each model also has serving, not_serving_because and
// unused_workers if the router reports these.
nlohmann::ordered_json ModelsJson(const v1::ListModelsResponse& response);
// Returns a few lines for people about each model.
std::string ModelLines(const v1::ListModelsResponse& response);
// Returns a line with the reason if the model is not served. Otherwise returns a line for each
// worker that is not used, if any. Each line begins with `indent`.
std::string ReasonLines(const v1::Model& model, absl::string_view indent);

// Returns the text with a blank in place of each line break and tab.
std::string OneLine(absl::string_view text);

// Returns "UNAVAILABLE: message (router 127.0.0.1:50051)" and a line end. Line breaks in the
// message become blanks.
std::string FailureLine(const absl::Status& status, absl::string_view router);

// Returns the JSON on one line. Bytes that are not UTF-8 become U+FFFD.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace baton
