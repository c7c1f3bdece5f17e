#include "router/http/chat_request.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/chat_fields.h"
#include "router/http/json_fields.h"
#include "router/http/shared_fields.h"

namespace baton {
namespace {

constexpr absl::string_view kNoToolCalls =
    "this server does not find calls of tools in answers yet: send \"tool_choice\": \"none\", and "
    "the template still gets the tools";

// Reads one request.
class ChatRequestParser {
 public:
  explicit ChatRequestParser(const CompletionSettings& settings)
      : shared_(settings, /*chat=*/true) {}

  absl::StatusOr<CompletionRequest> Parse(absl::string_view body) {
    RETURN_IF_ERROR(ReadBody(body, [this](absl::string_view name, JsonCursor* cursor) {
      return ReadField(name, cursor);
    }));
    RETURN_IF_ERROR(CheckTogether());
    ASSIGN_OR_RETURN(Chat chat, conversation_.Finish());
    RETURN_IF_ERROR(shared_.CheckTogether());
    SetDefaults();
    shared_.base().prompt = std::move(chat);
    CompletionRequest& request = shared_.request();
    request.prompts.push_back(std::move(shared_.base()));
    return std::move(request);
  }

 private:
  absl::Status ReadField(absl::string_view name, JsonCursor* cursor);
  absl::Status ReadUnusedField(absl::string_view name, JsonCursor* cursor, bool* known);
  absl::Status ReadToolChoice(const JsonPath& path, JsonCursor* cursor);
  // Checks the fields that depend on each other, but for those of the conversation alone.
  absl::Status CheckTogether() const;
  void SetDefaults();

  SharedFields shared_;
  ChatFields conversation_;
  bool logprobs_ = false;
  std::optional<int> top_logprobs_;
  std::optional<uint32_t> max_tokens_, max_completion_tokens_;
  std::optional<std::string> tool_choice_;  // "none" or "auto".
};

absl::Status ChatRequestParser::ReadField(absl::string_view name, JsonCursor* cursor) {
  bool known = false;
  RETURN_IF_ERROR(conversation_.Read(name, cursor, &known));
  if (known) return absl::OkStatus();
  RETURN_IF_ERROR(ReadUnusedField(name, cursor, &known));
  if (known) return absl::OkStatus();
  const JsonPath path = {.key = name};
  const auto tokens = [&](std::optional<uint32_t>* count) {
    return ReadCount(path, cursor, 1, kMaxTokenCount,
                     [count](int64_t value) { *count = static_cast<uint32_t>(value); });
  };
  if (name == "max_completion_tokens") return tokens(&max_completion_tokens_);
  if (name == "max_tokens") return tokens(&max_tokens_);
  if (name == "logprobs") return ReadFlag(path, cursor, &logprobs_);
  if (name == "top_logprobs") {
    return ReadCount(path, cursor, 0, kMaxAlternatives,
                     [this](int64_t value) { top_logprobs_ = static_cast<int>(value); });
  }
  if (name == "tool_choice") return ReadToolChoice(path, cursor);
  return shared_.Read(name, cursor);
}

// Reads a field that asks for nothing that this server does, and that does not change an answer.
absl::Status ChatRequestParser::ReadUnusedField(absl::string_view name, JsonCursor* cursor,
                                                bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  bool flag = false;
  std::string text;
  if (name == "parallel_tool_calls") return ReadFlag(path, cursor, &flag);
  if (name == "store") return ReadFlag(path, cursor, &flag);
  if (name == "metadata") return ReadMembers(path, cursor, {});
  constexpr size_t kAnySize = std::numeric_limits<size_t>::max();
  if (name == "service_tier") return ReadText(path, cursor, kAnySize, &text);
  if (name == "prompt_cache_key") return ReadText(path, cursor, kAnySize, &text);
  if (name == "safety_identifier") return ReadText(path, cursor, kAnySize, &text);
  *known = false;
  return absl::OkStatus();
}

absl::Status ChatRequestParser::ReadToolChoice(const JsonPath& path, JsonCursor* cursor) {
  const JsonCursor before = *cursor;
  const bool named = cursor->Peek() == JsonCursor::Kind::kObject;
  std::string choice;
  if (named) {
    RETURN_IF_ERROR(cursor->Skip());
  } else if (cursor->Peek() == JsonCursor::Kind::kString) {
    RETURN_IF_ERROR(cursor->ReadString(&choice));
  }
  if (choice == "none" || choice == "auto") {
    tool_choice_ = std::move(choice);
    return absl::OkStatus();
  }
  if (!named && choice != "required") {
    return WrongValue(path, before, "\"none\" or \"auto\"");
  }
  return BadParameter("tool_choice", absl::StrCat("tool_choice is ", JsonCursor(before).Describe(),
                                                  "; ", kNoToolCalls));
}

absl::Status ChatRequestParser::CheckTogether() const {
  if (conversation_.tools() > 0 && tool_choice_ != "none") {
    const char* const choice = tool_choice_ ? "\"auto\", and there are tools"
                                            : "missing, which means \"auto\" where there are tools";
    return BadParameter("tool_choice", absl::StrCat("tool_choice is ", choice, "; ", kNoToolCalls));
  }
  if (top_logprobs_.value_or(0) > 0 && !logprobs_) {
    return BadParameter("top_logprobs",
                        absl::StrCat("top_logprobs is ", *top_logprobs_,
                                     ", but logprobs is not true; set it, or leave both out"));
  }
  return absl::OkStatus();
}

void ChatRequestParser::SetDefaults() {
  if (logprobs_) shared_.shape().logprobs = top_logprobs_.value_or(0);
  const std::optional<uint32_t> max = max_completion_tokens_ ? max_completion_tokens_ : max_tokens_;
  if (max) shared_.sampling().set_max_tokens(*max);
  shared_.SetDefaults();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseChatRequest(absl::string_view body,
                                                   const CompletionSettings& settings) {
  return ChatRequestParser(settings).Parse(body);
}

}  // namespace baton
