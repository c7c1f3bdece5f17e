#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message of docs/troubleshooting.md: the first cell, without its backquotes, of a row of a table
// whose first column is called "message". "…" stands for a value.
struct KnownMessage {
  std::string section;  // the heading above its table
  std::string text;
};
const std::vector<KnownMessage>& TroubleshootingMessages();

// The texts of a message between its values.
std::vector<std::string> FixedParts(absl::string_view message);

// True if `line` has the fixed parts of some message, in their order; of one in that section, if
// one is named.
bool IsInTroubleshooting(absl::string_view line, absl::string_view section = "");

}  // namespace baton
