#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace baton {

// A call of a tool that the assistant made in an earlier turn.
struct ChatToolCall {
  std::string id;         // Empty: none.
  std::string name;       // Name of the function.
  std::string arguments;  // JSON text, as the model wrote it.

  bool operator==(const ChatToolCall&) const = default;
};

// One message of a conversation.
struct ChatMessage {
  std::string role;
  // A text, or the texts of its parts. Nothing: null, or absent.
  std::variant<std::monostate, std::string, std::vector<std::string>> content;
  std::optional<std::string> name, tool_call_id, reasoning;
  std::vector<ChatToolCall> tool_calls;

  bool operator==(const ChatMessage&) const = default;
};

// A conversation as the prompt of a request. All of it comes from the client, and nothing is
// checked yet. JSON stays text, so the order of keys and large integers stay as they are.
struct Chat {
  std::vector<ChatMessage> messages;
  std::string tools;            // A JSON list of descriptions of tools; empty: none.
  std::string documents;        // A JSON list of documents; empty: none.
  std::string template_kwargs;  // A JSON object of further variables; empty: none.
  // Ends the prompt with the beginning of the assistant's next message. Default true.
  std::optional<bool> add_generation_prompt;
  // Leaves the last message open, so that the answer continues it.
  bool continue_final_message = false;

  bool operator==(const Chat&) const = default;
};

// A conversation has at most this many messages, and parts and calls of tools together.
inline constexpr size_t kMaxMessages = 4096, kMaxPartsOfChat = 65536;

// Returns the number of parts and calls of tools.
size_t PartCount(const Chat& chat);
// Returns the bytes of all texts of a conversation.
size_t TextBytes(const Chat& chat);
// Returns about how much memory a conversation takes.
size_t MemoryOf(const Chat& chat);

}  // namespace baton
