#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message that stands in a source, as a reader sees it: "…" in place of each value.
struct SourceMessage {
  int line = 0;  // of the source, from 1
  std::string text;
};

// The messages that a C++ source ends a program with, or hands on to what does: the texts of
// RefuseToStart, of the functions like it that some modules have, and of statuses. Where a text has
// alternatives (a ? b : c), each is a message of its own. A text made elsewhere is not found.
std::vector<SourceMessage> MessagesOfProgram(absl::string_view source);

// The texts that `die`, `refuse` and `say` of ./baton are called with.
std::vector<SourceMessage> MessagesOfScript(absl::string_view source);

// The texts of `fail` and `required` in a template of the chart, and of `fail` in a script in it.
std::vector<SourceMessage> MessagesOfTemplate(absl::string_view source);

}  // namespace baton
