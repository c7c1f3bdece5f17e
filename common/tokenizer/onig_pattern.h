#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Rewrites a regular expression of a tokenizer.json so that PCRE2 (UTF and MULTILINE, newline LF)
// matches what Oniguruma with its Ruby syntax does, the engine that these patterns are written for.
// They differ in \s (PCRE2's has U+180E), \w, \v, \h, {,n}, {n,m}+ and more. Understood are
// alternation, groups, look-around, quantifiers, classes, \p{general category or script}, (?i:...)
// over ASCII. InvalidArgument, with the place, for everything else, and for more than 16 KiB: a
// pattern is never matched in a different sense. Time is linear.
absl::StatusOr<std::string> PatternFromOniguruma(absl::string_view pattern);

// The pattern that matches exactly `text`.
std::string PatternOfLiteral(absl::string_view text);

}  // namespace baton
