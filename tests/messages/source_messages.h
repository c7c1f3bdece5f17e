#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message found in a source, as a user sees it, with "…" in place of each value.
struct SourceMessage {
  int line = 0;  // line in the source, from 1
  std::string text;
};

// Returns the messages with which a C++ source ends a program, or that it passes on to code that
// does: the texts of RefuseToStart, of similar functions in some modules, and of statuses. If a
// text has alternatives (a ? b : c), each is a separate message. Does not find a text that is made
// elsewhere.
std::vector<SourceMessage> MessagesOfProgram(absl::string_view source);

// Returns the texts with which ./baton calls `die`, `refuse` and `say`.
std::vector<SourceMessage> MessagesOfScript(absl::string_view source);

// Returns the texts of `fail` and `required` in a template of the chart, and of `fail` in a script
// within the template.
std::vector<SourceMessage> MessagesOfTemplate(absl::string_view source);

}  // namespace baton
