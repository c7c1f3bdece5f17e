#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Replaces characters that are newer than Unicode 14. PCRE2 10.42 knows only the characters of
// Unicode 14, but the engine that Hugging Face uses knows those of Unicode 16. Copies `text` into
// `out`, with each newer character replaced by an older one. Both have the same general category
// and length in UTF-8 and, if possible, the same script. So a pattern cuts `text` and `out` at the
// same bytes. Returns false, and leaves `out` unchanged, if `text` has no newer character. `text`
// must be well-formed UTF-8.
bool ReplaceNewerCharacters(absl::string_view text, std::string* out);

// Returns the older character that replaces `code` if `code` is newer than Unicode 14. Otherwise
// returns `code`.
char32_t OlderCharacter(char32_t code);

}  // namespace baton
