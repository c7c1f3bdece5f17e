#pragma once

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns what to write instead of `value`, which `flag` did not take: "a time has a unit, such as
// --lease=45s". `why` is what absl's ParseFrom said. `flag_text` is the flag as it was typed.
std::string ValueHint(const absl::CommandLineFlag& flag, absl::string_view flag_text,
                      absl::string_view value, absl::string_view why);

// Returns the one of `names` that is most likely meant by `typed`, or "" when none is close.
std::string ClosestName(absl::string_view typed, const std::vector<std::string>& names);

}  // namespace baton
