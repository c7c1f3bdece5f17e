#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat.h"
#include "router/http/json_cursor.h"

namespace baton {

// Reads the fields that make up a conversation: its messages, and what its template gets beside
// them. /v1/chat/completions and /tokenize have them. Used by one thread at a time.
class ChatFields {
 public:
  // Reads a field. Sets `known` to false, and reads nothing, if it is not one of a conversation.
  absl::Status Read(absl::string_view name, JsonCursor* cursor, bool* known);

  // True if the body has `messages`.
  bool has_messages() const { return !chat_.messages.empty(); }
  // The name of a field of a conversation that the body has; empty: it has none.
  const std::string& some_field() const { return some_field_; }
  size_t tools() const { return tools_; }

  // Returns the conversation, once all fields were read. Returns InvalidArgument if there are no
  // messages, or if two fields contradict each other. Call it once.
  absl::StatusOr<Chat> Finish();

 private:
  absl::Status ReadKwargs(const JsonPath& path, JsonCursor* cursor);
  // Makes `reasoning_effort` a variable of the template.
  absl::Status AddReasoningEffort();

  Chat chat_;
  size_t tools_ = 0;  // Length of the list `tools`.
  std::string some_field_;
  std::string reasoning_effort_;  // Empty: none.
};

}  // namespace baton
