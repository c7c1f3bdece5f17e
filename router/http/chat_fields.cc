#include "router/http/chat_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/chat_messages.h"
#include "router/http/json_fields.h"
#include "router/http/json_writer.h"

namespace baton {
namespace {

constexpr char kReasoningEffort[] = "reasoning_effort";
constexpr size_t kMaxEffortBytes = 100;

// Names that chat_template_kwargs may not have, because the request says them in another way.
constexpr absl::string_view kFieldsOfTheirOwn[] = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

}  // namespace

absl::Status ChatFields::Read(absl::string_view name, JsonCursor* cursor, bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  const auto read = [&]() -> absl::Status {
    if (name == "messages") return ReadMessages(path, cursor, &chat_.messages);
    if (name == "tools") return ReadTools(path, cursor, &chat_.tools, &tools_);
    if (name == "chat_template_kwargs") return ReadKwargs(path, cursor);
    if (name == "documents") {
      JsonCursor elements = *cursor;
      RETURN_IF_ERROR(ReadList(
          path, &elements, "documents", chat_.documents.max_size(),
          [](const JsonPath& element, JsonCursor* at) { return ReadMembers(element, at, {}); }));
      absl::string_view text;
      RETURN_IF_ERROR(cursor->Skip(&text));
      chat_.documents = std::string(text);
      return absl::OkStatus();
    }
    if (name == "reasoning_effort") {
      RETURN_IF_ERROR(ReadText(path, cursor, kMaxEffortBytes, &reasoning_effort_));
      if (!reasoning_effort_.empty()) return absl::OkStatus();
      return WrongValue(path, "\"\"", "a string that is not empty");
    }
    if (name == "add_generation_prompt") {
      return ReadFlag(path, cursor, &chat_.add_generation_prompt.emplace());
    }
    if (name == "continue_final_message") {
      return ReadFlag(path, cursor, &chat_.continue_final_message);
    }
    *known = false;
    return absl::OkStatus();
  };
  const absl::Status status = read();
  if (*known) some_field_ = std::string(name);
  return status;
}

absl::Status ChatFields::ReadKwargs(const JsonPath& path, JsonCursor* cursor) {
  if (cursor->Peek() != JsonCursor::Kind::kObject) return WrongValue(path, *cursor, "an object");
  JsonCursor members = *cursor;
  RETURN_IF_ERROR(members.ReadObject([&](absl::string_view key) {
    const auto* const end = std::end(kFieldsOfTheirOwn);
    if (std::find(std::begin(kFieldsOfTheirOwn), end, key) == end) return members.Skip();
    const std::string name = JsonPath{.parent = &path, .key = key}.ToString();
    return BadParameter(name, absl::StrCat(name,
                                           " is set, but chat_template_kwargs holds only "
                                           "variables of the template's own; send ",
                                           key, " as a field of the request, or leave it out"));
  }));
  absl::string_view text;
  RETURN_IF_ERROR(cursor->Skip(&text));
  chat_.template_kwargs = std::string(text);
  return absl::OkStatus();
}

absl::Status ChatFields::AddReasoningEffort() {
  std::string kwargs = "{";
  if (!chat_.template_kwargs.empty()) {
    JsonCursor cursor(chat_.template_kwargs);
    RETURN_IF_ERROR(cursor.ReadObject([&](absl::string_view key) {
      absl::string_view value;
      RETURN_IF_ERROR(cursor.Skip(&value));
      if (key == kReasoningEffort) return absl::OkStatus();
      AppendJsonString(key, &kwargs);
      absl::StrAppend(&kwargs, ":", value, ",");
      return absl::OkStatus();
    }));
  }
  absl::StrAppend(&kwargs, "\"", kReasoningEffort, "\":");
  AppendJsonString(reasoning_effort_, &kwargs);
  kwargs.push_back('}');
  chat_.template_kwargs = std::move(kwargs);
  return absl::OkStatus();
}

absl::StatusOr<Chat> ChatFields::Finish() {
  if (!has_messages()) {
    return BadParameter("messages", "messages is missing; send a list with at least one message");
  }
  if (chat_.continue_final_message && chat_.add_generation_prompt.value_or(true)) {
    return BadParameter(
        "continue_final_message",
        absl::StrCat("continue_final_message is true, and so is add_generation_prompt",
                     chat_.add_generation_prompt ? "" : ", which is its default",
                     "; to continue the last message, set add_generation_prompt to false"));
  }
  if (!reasoning_effort_.empty()) {
    RETURN_IF_ERROR(AddReasoningEffort());
  }
  return std::move(chat_);
}

}  // namespace baton
