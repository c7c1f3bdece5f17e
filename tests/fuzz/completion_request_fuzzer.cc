#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/error_details.h"
#include "common/base/json_value.h"
#include "common/chat/chat.h"
#include "router/http/chat_messages.h"
#include "router/http/chat_request.h"
#include "router/http/completion_request.h"
#include "router/http/ignored_fields.h"
#include "router/http/text_messages.h"

namespace baton {
namespace {

// A text judged by another parser, which can't judge a text with a number beyond all doubles.
enum class JsonKind { kWrong, kRight, kUnknown };

class JsonJudge final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(int64_t /*value*/) override { return true; }
  bool number_unsigned(uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*size*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool key(std::string& /*value*/) override { return true; }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    kind = error.id == kNumberOverflow ? JsonKind::kUnknown : JsonKind::kWrong;
    return false;
  }
  JsonKind kind = JsonKind::kRight;
};

JsonKind KindOf(absl::string_view text) {
  // nlohmann's parser ends at a zero byte and skips a byte order mark. Neither is valid JSON.
  if (absl::StrContains(text, '\0') || absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return JsonKind::kWrong;
  }
  JsonJudge judge;
  nlohmann::json::sax_parse(text.begin(), text.end(), &judge);
  return judge.kind;
}

void CheckRefusal(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status) && !status.message().empty()) << status;
  BATON_CHECK(IsUtf8(status.message()));
  // A body may quote at most parts of itself, so a message stays short.
  BATON_CHECK(status.message().size() < 2000) << status.message().size();
}

void CheckIgnored(const IgnoredFields& ignored) {
  const std::string header = IgnoredFieldsHeader(ignored);
  BATON_CHECK(header.size() <= 1024 && header.empty() == (ignored.count == 0)) << header;
  BATON_CHECK(std::all_of(header.begin(), header.end(), [](char c) { return c > 32 && c < 127; }));
}

void CheckText(const std::optional<std::string>& text) { BATON_CHECK(!text || IsUtf8(*text)); }

void CheckChat(const Chat& chat) {
  BATON_CHECK(!chat.messages.empty() && chat.messages.size() <= kMaxMessages);
  for (const ChatMessage& message : chat.messages) {
    for (const std::optional<std::string>& text :
         {std::optional(message.role), message.name, message.tool_call_id, message.reasoning}) {
      CheckText(text);
    }
    if (const auto* const text = std::get_if<std::string>(&message.content)) CheckText(*text);
    if (const auto* const parts = std::get_if<std::vector<std::string>>(&message.content)) {
      BATON_CHECK(parts->size() <= kMaxPartsOfMessage);
      for (const std::string& part : *parts) CheckText(part);
    }
    BATON_CHECK(message.tool_calls.size() <= kMaxToolCallsOfMessage);
    for (const ChatToolCall& call : message.tool_calls) {
      CheckText(call.id + call.name + call.arguments);
    }
  }
  BATON_CHECK(chat.tools.empty() || chat.tools.front() == '[') << chat.tools;
  BATON_CHECK(chat.documents.empty() || chat.documents.front() == '[') << chat.documents;
  BATON_CHECK(chat.template_kwargs.empty() || chat.template_kwargs.front() == '{');
  for (const std::string& text : {chat.tools, chat.documents, chat.template_kwargs}) {
    CheckText(text);
    BATON_CHECK(text.empty() || KindOf(text) != JsonKind::kWrong) << text;
  }
  BATON_CHECK(!chat.continue_final_message || chat.add_generation_prompt == false);
}

void CheckRequest(const CompletionRequest& request) {
  const size_t prompts = request.prompts.size();
  BATON_CHECK(prompts > 0 && prompts <= kMaxPrompts) << prompts;
  BATON_CHECK(prompts * static_cast<size_t>(request.shape.n) <= kMaxAnswersOfRequest);
  for (const ClientRequest& client : request.prompts) {
    const auto* const chat = std::get_if<Chat>(&client.prompt);
    BATON_CHECK(request.shape.chat == (chat != nullptr));
    if (chat != nullptr) {
      CheckChat(*chat);
    } else if (const auto* const text = std::get_if<std::string>(&client.prompt)) {
      BATON_CHECK(IsUtf8(*text));
    } else {
      for (const TokenId id : std::get<std::vector<TokenId>>(client.prompt)) BATON_CHECK(id >= 0);
    }
    const bool limited = client.sampling.has_max_tokens();
    BATON_CHECK(limited ? client.sampling.max_tokens() > 0 : chat != nullptr);
    BATON_CHECK(client.sampling.stop_size() <= 16);
    for (const std::string& stop : client.sampling.stop()) BATON_CHECK(IsUtf8(stop));
  }
}

void CheckAnswer(const absl::StatusOr<CompletionRequest>& request, JsonKind kind) {
  if (request.ok()) {
    BATON_CHECK(kind != JsonKind::kWrong);
    CheckRequest(*request);
    return CheckIgnored(request->ignored);
  }
  CheckRefusal(request.status());
  BATON_CHECK(kind != JsonKind::kRight ||
              !ParameterOf(request.status()).empty() ||  // It may quote these words.
              !absl::StartsWith(request.status().message(), "the body is not valid JSON") ||
              absl::StrContains(request.status().message(), "nested deeper"))
      << request.status();
}

}  // namespace
}  // namespace baton

// The first byte of the input holds flags. The rest is a body, which all parsers of requests get.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const absl::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const baton::CompletionSettings settings = {
      .model_has_temperature = (data[0] & 1) != 0,
      .refuse_unknown_fields = (data[0] & 2) != 0,
      .context_tokens = (data[0] & 4) != 0 ? size_t{8} : size_t{0}};
  const baton::JsonKind kind = baton::KindOf(body);
  baton::CheckAnswer(baton::ParseCompletionRequest(body, settings), kind);
  baton::CheckAnswer(baton::ParseChatRequest(body, settings), kind);
  const auto tokenize = baton::ParseTokenizeBody(body, settings);
  if (!tokenize.ok()) baton::CheckRefusal(tokenize.status());
  if (tokenize.ok() && std::holds_alternative<baton::Chat>(tokenize->prompt)) {
    baton::CheckChat(std::get<baton::Chat>(tokenize->prompt));
  }
  const auto detokenize = baton::ParseDetokenizeBody(body, settings);
  if (!detokenize.ok()) baton::CheckRefusal(detokenize.status());
  return 0;
}
