#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// The messages of docs/troubleshooting.md: the first cell, without its backquotes, of each row of a
// table whose first column is called "message". "…" stands for a value.
const std::vector<std::string>& TroubleshootingMessages();

// The texts of a message between its values.
std::vector<std::string> FixedParts(absl::string_view message);

// Whether `line` has the fixed parts of some message, in their order.
bool IsInTroubleshooting(absl::string_view line);

}  // namespace baton
