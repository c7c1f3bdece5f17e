#include "router/client/printing.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/json_value.h"
#include "common/base/program.h"
#include "common/rpc/retry_after.h"

namespace baton {

namespace {

template <typename Ids>
nlohmann::ordered_json IdsJson(const Ids& token_ids) {
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  for (const int32_t id : token_ids) ids.push_back(id);
  return ids;
}

}  // namespace

nlohmann::ordered_json TokensJson(const v1::TokenizeResponse& response) {
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const std::string& piece : response.pieces()) {
    nlohmann::ordered_json bytes = nlohmann::ordered_json::array();
    for (const unsigned char byte : piece) bytes.push_back(byte);
    pieces.push_back({{"text", piece}, {"bytes", bytes}});
  }
  nlohmann::ordered_json json = {{"token_ids", IdsJson(response.token_ids())}, {"pieces", pieces}};
  if (response.dropped_bytes() > 0) json["dropped_bytes"] = response.dropped_bytes();
  return json;
}

std::string DroppedNote(const v1::TokenizeResponse& response) {
  if (response.dropped_bytes() == 0) return "";
  return absl::StrCat("baton-client: the model has no token for ", response.dropped_bytes(),
                      response.dropped_bytes() == 1 ? " byte" : " bytes",
                      " of the text, and does not see ",
                      response.dropped_bytes() == 1 ? "it" : "them", "\n");
}

nlohmann::ordered_json TextJson(const v1::DetokenizeRequest& request,
                                const v1::DetokenizeResponse& response) {
  return {{"text", response.text()}, {"token_ids", IdsJson(request.token_ids())}};
}

std::string QuotedPiece(absl::string_view piece) {
  const bool whole = IsUtf8(piece);
  return absl::StrCat("\"", whole ? absl::Utf8SafeCEscape(piece) : absl::CEscape(piece), "\"");
}

std::string PieceLines(const v1::TokenizeResponse& response) {
  std::string lines;
  const int count = std::min(response.token_ids_size(), response.pieces_size());
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, response.token_ids(i), "\t", QuotedPiece(response.pieces(i)), "\n");
  }
  return lines;
}

nlohmann::ordered_json ModelsJson(const v1::ListModelsResponse& response) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const v1::Model& model : response.models()) {
    nlohmann::ordered_json json = {{"name", model.name()},
                                   {"architecture", model.architecture()},
                                   {"context_tokens", model.context_tokens()},
                                   {"vocab_size", model.vocab_size()},
                                   {"fingerprint", model.fingerprint()},
                                   {"numerics_id", model.numerics_id()},
                                   {"prefill_workers", model.prefill_workers()},
                                   {"decode_workers", model.decode_workers()}};
    if (model.has_serving()) {
      json["serving"] = model.serving();
      json["not_serving_because"] = model.not_serving_because();
      json["unused_workers"] = nlohmann::ordered_json::array();
      for (const std::string& why : model.unused_workers()) json["unused_workers"].push_back(why);
      json["failing_workers"] = nlohmann::ordered_json::array();
      for (const std::string& why : model.failing_workers()) json["failing_workers"].push_back(why);
    }
    models.push_back(std::move(json));
  }
  return {{"models", models}};
}

std::string ModelLines(const v1::ListModelsResponse& response) {
  std::string lines;
  for (const v1::Model& model : response.models()) {
    absl::StrAppend(
        &lines,
        absl::StrFormat("%s: %s, context %u tokens, vocabulary %u, %u prefill and "
                        "%u decode workers ready\n",
                        model.name(), model.architecture(), model.context_tokens(),
                        model.vocab_size(), model.prefill_workers(), model.decode_workers()));
    if (!model.numerics_id().empty()) {
      absl::StrAppend(&lines, "  identity ", model.fingerprint(), "/", model.numerics_id(), "\n");
    }
    absl::StrAppend(&lines, ReasonLines(model, "  "));
    for (const std::string& why : model.failing_workers()) {
      absl::StrAppend(&lines, "  ", OneLine(why), "\n");
    }
  }
  return lines;
}

std::string ReasonLines(const v1::Model& model, absl::string_view indent) {
  std::string lines;
  if (model.has_serving() && !model.serving()) {
    absl::StrAppend(&lines, indent, "does not serve: ", OneLine(model.not_serving_because()), "\n");
  }
  for (const std::string& why : model.unused_workers()) {
    absl::StrAppend(&lines, indent, OneLine(why), "\n");
  }
  return lines;
}

std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\r", " "}, {"\n", " "}, {"\t", " "}});
}

std::string FailureLine(const absl::Status& status, absl::string_view router) {
  const std::string message = OneLine(status.message());
  const std::optional<absl::Duration> again = RetryAfter(status);
  // True if the message is one of gRPC's texts for a call that never reached a router.
  const bool unreached = absl::StrContains(message, "failed to connect to all addresses") ||
                         absl::StrContains(message, "DNS resolution failed");
  return absl::StrCat(
      absl::StatusCodeToString(status.code()), message.empty() ? "" : ": ",
      unreached ? absl::StrCat("no router answers at ", router, ": start one (", RouterCommand(),
                               "), or name another with "
                               "--router; ")
                : "",
      message,
      absl::IsUnauthenticated(status) ? "; set $BATON_API_KEY to a key that the router takes" : "",
      again ? absl::StrCat("; try again in ",
                           absl::FormatDuration(absl::Ceil(*again, absl::Seconds(1))))
            : "",
      " (router ", router, ")\n");
}

std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace baton
