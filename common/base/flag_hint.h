#pragma once

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns advice on a `value` that `flag` refused: "a time has a unit, such as --lease=45s". `why`
// is the error of absl's ParseFrom. `flag_text` is the flag as the user typed it.
std::string ValueHint(const absl::CommandLineFlag& flag, absl::string_view flag_text,
                      absl::string_view value, absl::string_view why);

// Returns the entry of `names` that the user most likely meant by `typed`, or "" when none is
// close.
std::string ClosestName(absl::string_view typed, const std::vector<std::string>& names);

}  // namespace baton
