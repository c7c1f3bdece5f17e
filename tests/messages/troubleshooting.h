#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message of docs/troubleshooting.md, in which "…" stands for a value. Messages are in the tables
// whose first column is called "message": the first cell of each row has one, between backquotes.
struct KnownMessage {
  std::string section;  // Heading above the table that has the message.
  std::string text;
  std::string advice;  // Last cell of the row.
};
const std::vector<KnownMessage>& TroubleshootingMessages();

// Returns the parts of a message between its values.
std::vector<std::string> FixedParts(absl::string_view message);

// Returns true if `line` contains the fixed parts of some message in docs/troubleshooting.md, in
// their order. If `section` is not empty, only messages of that section count.
bool IsInTroubleshooting(absl::string_view line, absl::string_view section = "");

}  // namespace baton
