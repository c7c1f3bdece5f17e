#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message of docs/troubleshooting.md. Each row of a table whose first column is called "message"
// has one in its first cell, between backquotes. "…" stands for a value.
struct KnownMessage {
  std::string section;  // heading above the table
  std::string text;
};
const std::vector<KnownMessage>& TroubleshootingMessages();

// Returns the texts of a message between its values.
std::vector<std::string> FixedParts(absl::string_view message);

// Returns true if `line` contains the fixed parts of some message of the page, in their order. If
// `section` is not empty, only messages of that section count.
bool IsInTroubleshooting(absl::string_view line, absl::string_view section = "");

}  // namespace baton
