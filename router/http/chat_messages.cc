#include "router/http/chat_messages.h"

#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/json_fields.h"

namespace baton {
namespace {

constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();
constexpr size_t kMaxRoleBytes = 1000;

// Returns the error for a member that has to be there.
absl::Status Missing(const JsonPath& parent, absl::string_view key, absl::string_view wanted) {
  const std::string name = JsonPath{.parent = &parent, .key = key}.ToString();
  return BadParameter(name, absl::StrCat(name, " is missing; send ", wanted));
}

// Returns a reader of a text of any length, for ReadMembers().
auto TextInto(std::optional<std::string>* text) {
  return [text](const JsonPath& path, JsonCursor* cursor) {
    return ReadText(path, cursor, kAnyBytes, &text->emplace());
  };
}

// Reads the type of a tool, or of a call of one.
absl::Status ReadFunctionType(const JsonPath& path, JsonCursor* cursor, bool* has_type) {
  const JsonCursor before = *cursor;
  std::string type;
  RETURN_IF_ERROR(ReadText(path, cursor, kAnyBytes, &type));
  *has_type = true;
  if (type == "function") return absl::OkStatus();
  return WrongValue(path, before, "\"function\"");
}

// Reads the type of a part. `key` is the member that has the text of such a part.
absl::Status ReadPartType(const JsonPath& path, JsonCursor* cursor, absl::string_view* key) {
  JsonCursor before = *cursor;
  std::string type;
  RETURN_IF_ERROR(ReadText(path, cursor, kAnyBytes, &type));
  if (type == "text" || type == "input_text" || type == "output_text") {
    *key = "text";
  } else if (type == "refusal") {
    *key = "refusal";
  } else {
    const std::string name = path.ToString();
    return BadParameter(name, absl::StrCat(name, " is ", before.Describe(),
                                           "; this server reads and writes only text: send parts "
                                           "of the type \"text\""));
  }
  return absl::OkStatus();
}

absl::Status ReadPart(const JsonPath& path, JsonCursor* cursor, std::string* part) {
  if (cursor->Peek() == JsonCursor::Kind::kString) return cursor->ReadString(part);
  absl::string_view key;
  std::optional<std::string> text, refusal;
  RETURN_IF_ERROR(ReadMembers(
      path, cursor,
      {{"type",
        [&key](const JsonPath& member, JsonCursor* at) { return ReadPartType(member, at, &key); }},
       {"text", TextInto(&text)},
       {"refusal", TextInto(&refusal)}}));
  if (key.empty()) return Missing(path, "type", "\"text\"");
  std::optional<std::string>& found = key == "refusal" ? refusal : text;
  if (!found) return Missing(path, key, "the text of the part");
  *part = *std::move(found);
  return absl::OkStatus();
}

absl::Status ReadContent(const JsonPath& path, JsonCursor* cursor, ChatMessage* message) {
  switch (cursor->Peek()) {
    case JsonCursor::Kind::kString:
      return cursor->ReadString(&message->content.emplace<std::string>());
    case JsonCursor::Kind::kArray: {
      auto& parts = message->content.emplace<std::vector<std::string>>();
      return ReadList(path, cursor, "parts", kMaxPartsOfMessage,
                      [&parts](const JsonPath& element, JsonCursor* at) {
                        return ReadPart(element, at, &parts.emplace_back());
                      });
    }
    default:
      return WrongValue(path, *cursor, "a text, a list of parts, or null");
  }
}

// Reads the arguments of a call: JSON in a string, or an object.
absl::Status ReadArguments(const JsonPath& path, JsonCursor* cursor, std::string* arguments) {
  if (cursor->Peek() == JsonCursor::Kind::kString) return cursor->ReadString(arguments);
  if (cursor->Peek() != JsonCursor::Kind::kObject) {
    return WrongValue(path, *cursor, "a string with JSON, or an object");
  }
  absl::string_view text;
  RETURN_IF_ERROR(cursor->Skip(&text));
  *arguments = std::string(text);
  return absl::OkStatus();
}

absl::Status ReadToolCall(const JsonPath& path, JsonCursor* cursor, ChatToolCall* call) {
  std::optional<std::string> id, name;
  bool has_type = false, has_function = false;
  call->arguments = "{}";  // A call without arguments.
  RETURN_IF_ERROR(ReadMembers(
      path, cursor,
      {{"id", TextInto(&id)},
       {"type", [&has_type](const JsonPath& member,
                            JsonCursor* at) { return ReadFunctionType(member, at, &has_type); }},
       {"function", [&](const JsonPath& of_function, JsonCursor* at) {
          has_function = true;
          return ReadMembers(of_function, at,
                             {{"name", TextInto(&name)},
                              {"arguments", [call](const JsonPath& member, JsonCursor* value) {
                                 return ReadArguments(member, value, &call->arguments);
                               }}});
        }}}));
  if (!has_type) return Missing(path, "type", "\"function\"");
  const JsonPath of_function = {.parent = &path, .key = "function"};
  if (!has_function) return Missing(path, "function", "an object with name and arguments");
  if (!name) return Missing(of_function, "name", "the name of the function");
  if (id) call->id = *std::move(id);
  call->name = *std::move(name);
  return absl::OkStatus();
}

absl::Status ReadMessage(const JsonPath& path, JsonCursor* cursor, ChatMessage* message) {
  std::optional<std::string> role, reasoning, reasoning_content, thinking;
  RETURN_IF_ERROR(ReadMembers(
      path, cursor,
      {{"role",
        [&role](const JsonPath& member, JsonCursor* at) {
          return ReadText(member, at, kMaxRoleBytes, &role.emplace());
        }},
       {"content", [message](const JsonPath& member,
                             JsonCursor* at) { return ReadContent(member, at, message); }},
       {"name", TextInto(&message->name)},
       {"tool_call_id", TextInto(&message->tool_call_id)},
       {"tool_calls",
        [message](const JsonPath& member, JsonCursor* at) {
          return ReadList(member, at, "calls", kMaxToolCallsOfMessage,
                          [message](const JsonPath& element, JsonCursor* value) {
                            return ReadToolCall(element, value,
                                                &message->tool_calls.emplace_back());
                          });
        }},
       {"reasoning", TextInto(&reasoning)},
       {"reasoning_content", TextInto(&reasoning_content)},
       {"thinking", TextInto(&thinking)}}));
  if (!role) return Missing(path, "role", "such as \"user\"");
  message->role = *std::move(role);
  // The three names mean the same. Some servers write two of them, one of which may be empty.
  for (std::optional<std::string>* const text : {&reasoning, &reasoning_content, &thinking}) {
    if (message->reasoning.value_or("").empty() && *text) message->reasoning = std::move(*text);
  }
  return absl::OkStatus();
}

absl::Status ReadTool(const JsonPath& path, JsonCursor* cursor) {
  std::optional<std::string> name;
  bool has_type = false, has_function = false;
  RETURN_IF_ERROR(ReadMembers(
      path, cursor,
      {{"type", [&has_type](const JsonPath& member,
                            JsonCursor* at) { return ReadFunctionType(member, at, &has_type); }},
       {"function", [&](const JsonPath& of_function, JsonCursor* at) {
          has_function = true;
          return ReadMembers(of_function, at, {{"name", TextInto(&name)}});
        }}}));
  if (!has_type) return Missing(path, "type", "\"function\"");
  const JsonPath of_function = {.parent = &path, .key = "function"};
  if (!has_function) return Missing(path, "function", "an object with the name of the function");
  if (!name) return Missing(of_function, "name", "the name of the function");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMessages(const JsonPath& path, JsonCursor* cursor,
                          std::vector<ChatMessage>* messages) {
  std::vector<ChatMessage> read;
  size_t parts = 0;
  RETURN_IF_ERROR(ReadList(
      path, cursor, "messages", kMaxMessages, [&](const JsonPath& element, JsonCursor* at) {
        ChatMessage& message = read.emplace_back();
        RETURN_IF_ERROR(ReadMessage(element, at, &message));
        const auto* const texts = std::get_if<std::vector<std::string>>(&message.content);
        parts += message.tool_calls.size() + (texts != nullptr ? texts->size() : 0);
        if (parts <= kMaxPartsOfChat) return absl::OkStatus();
        return BadParameter("messages",
                            absl::StrCat("messages has more than ", kMaxPartsOfChat,
                                         " parts and calls of tools; send texts instead of parts"));
      }));
  if (read.empty()) return WrongValue(path, "an empty list", "at least one message");
  *messages = std::move(read);
  return absl::OkStatus();
}

absl::Status ReadTools(const JsonPath& path, JsonCursor* cursor, std::string* tools,
                       size_t* count) {
  if (cursor->Peek() != JsonCursor::Kind::kArray) {
    return WrongValue(path, *cursor, "a list of tools");
  }
  JsonCursor elements = *cursor;
  absl::string_view text;
  RETURN_IF_ERROR(cursor->Skip(&text));
  size_t found = 0;
  RETURN_IF_ERROR(ReadList(path, &elements, "tools", kAnyBytes,
                           [&found](const JsonPath& element, JsonCursor* at) {
                             ++found;
                             return ReadTool(element, at);
                           }));
  *tools = found > 0 ? std::string(text) : "";
  *count = found;
  return absl::OkStatus();
}

}  // namespace baton
