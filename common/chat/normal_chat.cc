#include "common/chat/normal_chat.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_details.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_json.h"

namespace baton {
namespace {

constexpr std::array<absl::string_view, 6> kRoles = {"system",    "developer", "user",
                                                     "assistant", "tool",      "function"};
// Names that a request can't give to variables of its own.
constexpr std::array<absl::string_view, 9> kReservedNames = {"messages",
                                                             "tools",
                                                             "documents",
                                                             "add_generation_prompt",
                                                             "continue_final_message",
                                                             "chat_template",
                                                             "tokenize",
                                                             "conversation",
                                                             "return_assistant_tokens_mask"};

// Values of JSON in one conversation: tools, documents, variables and arguments together.
constexpr size_t kMaxValues = size_t{1} << 18;

using Members = std::vector<std::pair<ChatValue, ChatValue>>;

ChatValue People(absl::string_view text) { return ChatValue::Text(text, TextOrigin::kPeople); }
ChatValue Ours(absl::string_view text) { return ChatValue::Text(text, TextOrigin::kTemplate); }
void Add(absl::string_view key, ChatValue value, Members* members) {
  members->emplace_back(People(key), std::move(value));
}

absl::Status NotUtf8(absl::string_view parameter) {
  return BadParameter(parameter, absl::StrCat(parameter, " is not UTF-8"));
}

// Returns the name of a member of a message, such as messages[2].role.
std::string NameOf(size_t message, absl::string_view member) {
  return absl::StrCat("messages[", message, "].", member);
}

// Returns the parts of a content; one of a text, none of no content.
std::vector<absl::string_view> PartsOf(const ChatMessage& message) {
  if (const auto* text = std::get_if<std::string>(&message.content)) return {*text};
  if (const auto* parts = std::get_if<std::vector<std::string>>(&message.content)) {
    return {parts->begin(), parts->end()};
  }
  return {};
}

ChatValue ContentOf(const ChatMessage& message, const TemplateTraits& traits) {
  const bool has_parts = std::holds_alternative<std::vector<std::string>>(message.content);
  const std::vector<absl::string_view> parts = PartsOf(message);
  if (!has_parts || !traits.takes_parts || message.role == "tool") {
    return People(absl::StrJoin(parts, "\n"));
  }
  std::vector<ChatValue> items;
  for (const absl::string_view part : parts) {
    Members members;
    Add("type", People("text"), &members);
    Add("text", People(part), &members);
    items.push_back(ChatValue::Dict(members));
  }
  return ChatValue::List(std::move(items));
}

ChatValue ToolCallsOf(const ChatMessage& message, size_t* values_left, size_t* broken_arguments) {
  std::vector<ChatValue> calls;
  for (const ChatToolCall& call : message.tool_calls) {
    absl::StatusOr<ChatValue> arguments = ParseChatJson(call.arguments, values_left);
    if (!arguments.ok() || !arguments->IsDict()) {
      *broken_arguments += !call.arguments.empty();
      arguments = ChatValue::Dict({});
    }
    Members function, members;
    Add("name", People(call.name), &function);
    Add("arguments", *std::move(arguments), &function);
    if (!call.id.empty()) Add("id", People(call.id), &members);
    Add("type", People("function"), &members);
    Add("function", ChatValue::Dict(function), &members);
    calls.push_back(ChatValue::Dict(members));
  }
  return ChatValue::List(std::move(calls));
}

absl::Status CheckText(const ChatMessage& message, size_t index) {
  const auto check = [&](absl::string_view member, absl::string_view text) {
    return IsUtf8(text) ? absl::OkStatus() : NotUtf8(NameOf(index, member));
  };
  for (const absl::string_view part : PartsOf(message)) {
    RETURN_IF_ERROR(check("content", part));
  }
  RETURN_IF_ERROR(check("name", message.name.value_or("")));
  RETURN_IF_ERROR(check("tool_call_id", message.tool_call_id.value_or("")));
  RETURN_IF_ERROR(check("reasoning", message.reasoning.value_or("")));
  for (const ChatToolCall& call : message.tool_calls) {
    for (const std::string* text : {&call.id, &call.name, &call.arguments}) {
      RETURN_IF_ERROR(check("tool_calls", *text));
    }
  }
  return absl::OkStatus();
}

// A role that a template names may still be the text of a special token, as in '<|im_end|>'. Only
// plain words can't.
bool IsPlainWord(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

absl::Status CheckRole(const ChatMessage& message, size_t index,
                       const ChatTemplate& chat_template) {
  if (std::find(kRoles.begin(), kRoles.end(), message.role) != kRoles.end() ||
      (IsPlainWord(message.role) && chat_template.HasString(message.role))) {
    return absl::OkStatus();
  }
  return BadParameter(
      NameOf(index, "role"),
      absl::StrCat(NameOf(index, "role"), " is \"",
                   absl::Utf8SafeCEscape(message.role.substr(0, 100)), "\"; the roles are ",
                   absl::StrJoin(kRoles, ", "), " and those that the model's chat template names"));
}

ChatValue ValueOf(const ChatMessage& message, const TemplateTraits& traits, size_t* values_left,
                  size_t* broken_arguments) {
  Members members;
  if (message.reasoning) Add("thinking", People(*message.reasoning), &members);
  Add("role", Ours(message.role), &members);
  Add("content", ContentOf(message, traits), &members);
  if (!message.tool_calls.empty()) {
    Add("tool_calls", ToolCallsOf(message, values_left, broken_arguments), &members);
  }
  if (message.tool_call_id) Add("tool_call_id", People(*message.tool_call_id), &members);
  if (message.reasoning) {
    Add("reasoning", People(*message.reasoning), &members);
    Add("reasoning_content", People(*message.reasoning), &members);
  }
  if (message.name) Add("name", People(*message.name), &members);
  return ChatValue::Dict(members);
}

// Returns the text of a message that an answer can continue; null if it has none.
std::string* TextToContinue(ChatMessage* message) {
  if (auto* const text = std::get_if<std::string>(&message->content)) return text;
  auto* const parts = std::get_if<std::vector<std::string>>(&message->content);
  return parts == nullptr || parts->empty() ? nullptr : &parts->back();
}

// Puts all messages of the system into the first place, as one.
void MergeSystems(std::vector<ChatMessage>* messages) {
  const auto is_system = [](const ChatMessage& message) { return message.role == "system"; };
  if (std::count_if(messages->begin(), messages->end(), is_system) < 2) return;
  std::vector<std::string> texts;
  for (const ChatMessage& message : *messages) {
    if (is_system(message)) texts.push_back(absl::StrJoin(PartsOf(message), "\n"));
  }
  messages->erase(std::remove_if(messages->begin(), messages->end(), is_system), messages->end());
  ChatMessage merged;
  merged.role = "system";
  merged.content = absl::StrJoin(texts, "\n\n");
  messages->insert(messages->begin(), std::move(merged));
}

// Returns None for a text that is empty, or an empty list.
absl::StatusOr<ChatValue> ListOfObjects(absl::string_view name, absl::string_view json,
                                        size_t* values_left) {
  if (json.empty()) return ChatValue::None();
  absl::StatusOr<ChatValue> value = ParseChatJson(json, values_left);
  if (!value.ok()) {
    return BadParameter(name, absl::StrCat(name, " is not JSON: ", value.status().message()));
  }
  if (!value->IsSequence() || !std::all_of(value->AsItems().begin(), value->AsItems().end(),
                                           [](const ChatValue& item) { return item.IsDict(); })) {
    return BadParameter(name, absl::StrCat(name, " is no list of objects"));
  }
  return value->AsItems().empty() ? ChatValue::None() : *value;
}

absl::StatusOr<ChatVariables> ExtraVariables(absl::string_view json, size_t* values_left) {
  ChatVariables variables;
  if (json.empty()) return variables;
  const absl::string_view name = "chat_template_kwargs";
  const absl::StatusOr<ChatValue> value = ParseChatJson(json, values_left);
  if (!value.ok()) {
    return BadParameter(name, absl::StrCat(name, " is not JSON: ", value.status().message()));
  }
  if (!value->IsDict()) return BadParameter(name, absl::StrCat(name, " is no JSON object"));
  for (const auto& [key, variable] : value->AsDict().entries()) {
    std::string key_text = key.AsText().Utf8();
    if (std::find(kReservedNames.begin(), kReservedNames.end(), key_text) != kReservedNames.end()) {
      return BadParameter(name, absl::StrCat(name, " has \"", key_text,
                                             "\", which is no variable of a request's own"));
    }
    variables.emplace_back(std::move(key_text), variable);
  }
  return variables;
}

}  // namespace

TemplateTraits ProbeTemplate(const ChatTemplate& chat_template, const ChatVariables& constants) {
  const auto renders = [&](std::vector<ChatMessage> messages, const TemplateTraits& traits,
                           std::initializer_list<absl::string_view> texts) {
    Chat chat;
    chat.messages = std::move(messages);
    const auto normal = NormalizeChat(chat, chat_template, traits);
    if (!normal.ok()) return false;
    ChatVariables variables = constants;
    variables.insert(variables.end(), normal->variables.begin(), normal->variables.end());
    const auto rendered = chat_template.Render(variables, {}, {});
    return rendered.ok() &&
           std::all_of(
               texts.begin(), texts.end(),
               [&](absl::string_view text) { return absl::StrContains(rendered->text, text); }) &&
           !absl::StrContains(rendered->text, "'type'") &&
           !absl::StrContains(rendered->text, "\"type\"");
  };
  constexpr char kFirst[] = "qJ3vZx", kSecond[] = "Wk8bTy", kThird[] = "Lm5cRf";
  ChatMessage parts, first, second, user;
  parts.role = user.role = "user";
  first.role = second.role = "system";
  parts.content = std::vector<std::string>{kFirst, kSecond};
  first.content = kFirst;
  second.content = kSecond;
  user.content = kThird;
  return {.takes_parts = renders({parts}, {.takes_parts = true}, {kFirst, kSecond}),
          .takes_several_systems = renders({first, second, user}, {.takes_several_systems = true},
                                           {kFirst, kSecond, kThird})};
}

absl::StatusOr<NormalChat> NormalizeChat(const Chat& chat, const ChatTemplate& chat_template,
                                         const TemplateTraits& traits) {
  if (chat.messages.empty()) return BadParameter("messages", "messages is empty");
  if (const size_t parts = PartCount(chat);
      chat.messages.size() > kMaxMessages || parts > kMaxPartsOfChat) {
    return BadParameter("messages",
                        absl::StrCat("messages has ", chat.messages.size(), " messages and ", parts,
                                     " parts and calls of tools; it takes up to ", kMaxMessages,
                                     " and ", kMaxPartsOfChat));
  }
  std::vector<ChatMessage> messages = chat.messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(CheckRole(messages[i], i, chat_template));
    RETURN_IF_ERROR(CheckText(messages[i], i));
    if (messages[i].role == "developer" && !chat_template.HasString("developer")) {
      messages[i].role = "system";
    }
  }
  if (!traits.takes_several_systems) MergeSystems(&messages);
  NormalChat normal;
  if (chat.continue_final_message) {
    std::string* const text = TextToContinue(&messages.back());
    if (text == nullptr) {
      return BadParameter("continue_final_message",
                          "the last message has no content that could be continued");
    }
    normal.final_text = *text;
    absl::StrAppend(text, kContinueTag);
  }
  size_t values_left = kMaxValues;
  std::vector<ChatValue> values;
  for (const ChatMessage& message : messages) {
    values.push_back(ValueOf(message, traits, &values_left, &normal.broken_arguments));
  }
  normal.variables.emplace_back("messages", ChatValue::List(std::move(values)));
  ASSIGN_OR_RETURN(ChatValue tools, ListOfObjects("tools", chat.tools, &values_left));
  normal.variables.emplace_back("tools", std::move(tools));
  ASSIGN_OR_RETURN(ChatValue documents, ListOfObjects("documents", chat.documents, &values_left));
  normal.variables.emplace_back("documents", std::move(documents));
  const bool generation_prompt = chat.add_generation_prompt.value_or(!chat.continue_final_message);
  normal.variables.emplace_back("add_generation_prompt", ChatValue::Bool(generation_prompt));
  ASSIGN_OR_RETURN(ChatVariables extra, ExtraVariables(chat.template_kwargs, &values_left));
  std::move(extra.begin(), extra.end(), std::back_inserter(normal.variables));
  return normal;
}

}  // namespace baton
