#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/chat/chat.h"
#include "router/http/json_cursor.h"

// Read the parts of a conversation from JSON. They return BadParameter() with the place of the
// value that is wrong, such as "messages[2].content[0].type". Any thread.
namespace baton {

// Max parts of one message, and max calls of tools in it.
inline constexpr size_t kMaxPartsOfMessage = 1024, kMaxToolCallsOfMessage = 1024;

// Reads the list `messages`, which is not empty. Members that a template does not get, such as
// `refusal` and `annotations` of an earlier answer, are dropped.
absl::Status ReadMessages(const JsonPath& path, JsonCursor* cursor,
                          std::vector<ChatMessage>* messages);

// Reads the list `tools`, and keeps it as it is written. Each element has to be the description of
// a function. Sets `count` to the length of the list.
absl::Status ReadTools(const JsonPath& path, JsonCursor* cursor, std::string* tools, size_t* count);

}  // namespace baton
