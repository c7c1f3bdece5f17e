#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat.h"
#include "common/chat/chat_template.h"
#include "common/chat/chat_value.h"

namespace baton {

// The messages that a template expects, found out with a few renderings of messages that are
// known.
struct TemplateTraits {
  bool takes_parts = false;            // Content may be a list of parts.
  bool takes_several_systems = false;  // More than one message may be of the system.
};

// Returns the traits of a template. `constants` are the variables that every rendering has.
TemplateTraits ProbeTemplate(const ChatTemplate& chat_template, const ChatVariables& constants);

// A conversation as a template gets it.
struct NormalChat {
  ChatVariables variables;
  // Arguments of tool calls that were not the text of a JSON object. The template sees {}.
  size_t broken_arguments = 0;
  // The text of the last message, to which kContinueTag was added if the answer continues it.
  std::string final_text;
};

// Marks the place at which an answer continues the last message, as in transformers.
inline constexpr absl::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// Turns a conversation into the variables of a template, as vLLM and transformers do:
//
// - Arguments of a tool call are an object if they are the text of one, and {} otherwise.
// - A content of parts is a list of parts if the template takes that, and otherwise the texts with
// a
//   newline between; in messages of tools it is always the latter. No content is an empty text.
// - The role `developer` is `system`, unless the template has the word in quotes.
// - All messages of the system are one, the first, with empty lines between, unless the template
//   takes several.
// - What the assistant thought has the names reasoning, reasoning_content and thinking.
//
// All texts are people's, except for roles: a role is the template's text if it is one of OpenAI's,
// or a plain word that the template has in quotes. Any other role is refused. Returns
// InvalidArgument with the parameter for what can't be a conversation.
absl::StatusOr<NormalChat> NormalizeChat(const Chat& chat, const ChatTemplate& chat_template,
                                         const TemplateTraits& traits);

}  // namespace baton
