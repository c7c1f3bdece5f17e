#include "common/chat/chat.h"

namespace baton {
namespace {

size_t TextBytes(const std::optional<std::string>& text) { return text ? text->size() : 0; }

}  // namespace

size_t TextBytes(const Chat& chat) {
  size_t bytes = chat.tools.size() + chat.documents.size() + chat.template_kwargs.size();
  for (const ChatMessage& message : chat.messages) {
    bytes += message.role.size() + TextBytes(message.name) + TextBytes(message.tool_call_id) +
             TextBytes(message.reasoning);
    if (const auto* text = std::get_if<std::string>(&message.content)) bytes += text->size();
    if (const auto* parts = std::get_if<std::vector<std::string>>(&message.content)) {
      for (const std::string& part : *parts) bytes += part.size();
    }
    for (const ChatToolCall& call : message.tool_calls) {
      bytes += call.id.size() + call.name.size() + call.arguments.size();
    }
  }
  return bytes;
}

size_t PartCount(const Chat& chat) {
  size_t parts = 0;
  for (const ChatMessage& message : chat.messages) {
    const auto* const texts = std::get_if<std::vector<std::string>>(&message.content);
    parts += message.tool_calls.size() + (texts == nullptr ? 0 : texts->size());
  }
  return parts;
}

size_t MemoryOf(const Chat& chat) {
  // Each part and each call becomes some values of a template.
  constexpr size_t kBytesOfPart = 2048;
  size_t bytes = sizeof chat + TextBytes(chat) + chat.messages.size() * sizeof(ChatMessage) +
                 (chat.messages.size() + PartCount(chat)) * kBytesOfPart;
  for (const ChatMessage& message : chat.messages) {
    bytes += message.tool_calls.size() * sizeof(ChatToolCall);
    if (const auto* parts = std::get_if<std::vector<std::string>>(&message.content)) {
      bytes += parts->size() * sizeof(std::string);
    }
  }
  return bytes;
}

}  // namespace baton
