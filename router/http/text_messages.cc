#include "router/http/text_messages.h"

#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/json_cursor.h"
#include "router/http/json_fields.h"
#include "router/http/json_writer.h"
#include "router/http/shared_fields.h"

namespace baton {
namespace {

constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();

// Refuses the fields of vLLM's request in the form of a chat, and treats other fields as
// `settings` says.
absl::Status ReadOtherField(absl::string_view name, const CompletionSettings& settings,
                            JsonCursor* cursor, IgnoredFields* ignored) {
  if (name == "messages" || name == "tools" || name == "chat_template") {
    return BadParameter(name, absl::StrCat(name,
                                           " is set, but chat is not supported here; send "
                                           "the conversation as one text in prompt"));
  }
  if (settings.refuse_unknown_fields) {
    const JsonPath path = {.key = name};
    return BadParameter(path.ToString(), absl::StrCat(path.ToString(),
                                                      " is not a field that this server knows, "
                                                      "and it refuses such fields; leave it out"));
  }
  AddIgnoredField(name, ignored);
  return cursor->Skip();
}

// Appends a list, each element by `append`.
template <typename T>
void AppendList(absl::Span<const T> values, absl::FunctionRef<void(const T&)> append,
                std::string* out) {
  out->push_back('[');
  bool first = true;
  for (const T& value : values) {
    if (!std::exchange(first, false)) out->push_back(',');
    append(value);
  }
  out->push_back(']');
}

void AppendCard(const ModelCard& card, std::string* out) {
  out->append("{\"id\":");
  AppendJsonString(card.name, out);
  absl::StrAppend(out, ",\"object\":\"model\",\"created\":", card.created,
                  ",\"owned_by\":\"baton\",\"root\":");
  AppendJsonString(card.name, out);
  absl::StrAppend(out, ",\"parent\":null,\"max_model_len\":", card.context_tokens,
                  ",\"vocab_size\":", card.vocab_size, ",\"permission\":[]}");
}

}  // namespace

absl::StatusOr<TokenizeBody> ParseTokenizeBody(absl::string_view body,
                                               const CompletionSettings& settings) {
  TokenizeBody request;
  bool has_prompt = false;
  RETURN_IF_ERROR(ReadBody(body, [&](absl::string_view name, JsonCursor* cursor) {
    const JsonPath path = {.key = name};
    if (name == "model") return ReadText(path, cursor, kMaxModelNameBytes, &request.model);
    if (name == "add_special_tokens") return ReadFlag(path, cursor, &request.add_special);
    if (name == "return_token_strs") return ReadFlag(path, cursor, &request.return_token_strs);
    if (name == "prompt") {
      has_prompt = true;
      return ReadText(path, cursor, kAnyLength, &request.prompt);
    }
    return ReadOtherField(name, settings, cursor, &request.ignored);
  }));
  if (!has_prompt) return BadParameter("prompt", "prompt is missing; send the text to tokenise");
  return request;
}

absl::StatusOr<DetokenizeBody> ParseDetokenizeBody(absl::string_view body,
                                                   const CompletionSettings& settings) {
  DetokenizeBody request;
  bool has_tokens = false;
  RETURN_IF_ERROR(ReadBody(body, [&](absl::string_view name, JsonCursor* cursor) {
    const JsonPath path = {.key = name};
    if (name == "model") return ReadText(path, cursor, kMaxModelNameBytes, &request.model);
    if (name == "tokens") {
      has_tokens = true;
      size_t count = 0;
      return ReadTokenIds(path, cursor, kAnyLength, &request.tokens, &count);
    }
    return ReadOtherField(name, settings, cursor, &request.ignored);
  }));
  if (!has_tokens) return BadParameter("tokens", "tokens is missing; send a list of token ids");
  return request;
}

std::string TokenizeAnswer(absl::Span<const TokenId> ids, int64_t context_tokens,
                           bool return_token_strs, const Tokenizer& tokenizer) {
  std::string out = absl::StrCat("{\"count\":", ids.size(), ",\"max_model_len\":", context_tokens,
                                 ",\"tokens\":");
  AppendList<TokenId>(
      ids, [&](const TokenId& id) { AppendJsonInt(id, &out); }, &out);
  out.append(",\"token_strs\":");
  if (return_token_strs) {
    AppendList<TokenId>(
        ids, [&](const TokenId& id) { AppendJsonString(tokenizer.TokenText(id), &out); }, &out);
  } else {
    out.append("null");
  }
  out.push_back('}');
  return out;
}

std::string DetokenizeAnswer(absl::string_view text) {
  std::string out = "{\"prompt\":";
  AppendJsonString(text, &out);
  out.push_back('}');
  return out;
}

std::string ModelCardAnswer(const ModelCard& card) {
  std::string out;
  AppendCard(card, &out);
  return out;
}

std::string ModelListAnswer(absl::Span<const ModelCard> cards) {
  std::string out = "{\"object\":\"list\",\"data\":";
  AppendList<ModelCard>(
      cards, [&](const ModelCard& card) { AppendCard(card, &out); }, &out);
  out.push_back('}');
  return out;
}

}  // namespace baton
