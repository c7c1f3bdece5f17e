#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Rewrites a regular expression of a tokenizer.json for PCRE2 (UTF and MULTILINE, newline LF). Such
// patterns are written for the engine Oniguruma with Ruby syntax. The result matches exactly what
// Oniguruma matches. The two engines differ in \s (PCRE2's includes U+180E), \w, \v, \h, {,n},
// {n,m}+ and more. Supports alternation, groups, look-around, quantifiers, classes, also inside
// of classes, \p{general category or script}, and (?i:...) over ASCII. For everything else, returns
// InvalidArgument with the position in the pattern, so that a pattern never gets another meaning.
// Also returns InvalidArgument for a pattern of more than 16 KiB. Time is linear.
absl::StatusOr<std::string> PatternFromOniguruma(absl::string_view pattern);

// Returns a pattern that matches exactly `text`.
std::string PatternOfLiteral(absl::string_view text);

}  // namespace baton
