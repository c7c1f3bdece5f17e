#include "router/http/text_messages.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/chat_fields.h"
#include "router/http/json_cursor.h"
#include "router/http/json_fields.h"
#include "router/http/json_writer.h"
#include "router/http/refused_fields.h"
#include "router/http/shared_fields.h"

namespace baton {
namespace {

constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
constexpr char kChatTemplate[] = "chat_template";

// Treats a field that the path does not have as `settings` says.
absl::Status ReadOtherField(absl::string_view name, const CompletionSettings& settings,
                            JsonCursor* cursor, IgnoredFields* ignored) {
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
  ChatFields conversation;
  std::optional<std::string> prompt;
  std::optional<bool> add_special;
  RETURN_IF_ERROR(ReadBody(body, [&](absl::string_view name, JsonCursor* cursor) {
    const JsonPath path = {.key = name};
    if (name == "model") return ReadText(path, cursor, kMaxModelNameBytes, &request.model);
    if (name == "add_special_tokens") return ReadFlag(path, cursor, &add_special.emplace());
    if (name == "return_token_strs") return ReadFlag(path, cursor, &request.return_token_strs);
    if (name == "prompt") return ReadText(path, cursor, kAnyLength, &prompt.emplace());
    if (name == kChatTemplate) {
      return ReadRefusedField(*FindRefusedField(kChatTemplate, /*chat=*/true), cursor);
    }
    bool known = false;
    RETURN_IF_ERROR(conversation.Read(name, cursor, &known));
    if (known) return absl::OkStatus();
    return ReadOtherField(name, settings, cursor, &request.ignored);
  }));
  const std::string& of_chat = conversation.some_field();
  if (prompt && !of_chat.empty()) {
    return BadParameter(of_chat, absl::StrCat(of_chat,
                                              " and prompt are set; send prompt for a "
                                              "text, or messages for a conversation"));
  }
  if (prompt) {
    request.prompt = *std::move(prompt);
    request.add_special = add_special.value_or(true);
    return request;
  }
  if (of_chat.empty()) {
    return BadParameter("prompt",
                        "prompt is missing; send the text to tokenise, or messages to tokenise");
  }
  ASSIGN_OR_RETURN(request.prompt, conversation.Finish());
  request.add_special = false;
  if (!add_special.value_or(false)) return request;
  return BadParameter("add_special_tokens",
                      absl::StrCat("add_special_tokens is true; ",
                                   FindRefusedField("add_special_tokens", /*chat=*/true)->reason));
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
