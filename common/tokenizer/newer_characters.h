#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// PCRE2 10.42 knows the characters of Unicode 14, but the engine that Hugging Face uses knows those
// of Unicode 16. Copies `text` into `out` and replaces each character added in between by an older
// one. Both have the same general category and length in UTF-8 and, if possible, the same script,
// so a pattern cuts `text` and `out` at the same bytes. Returns false, and leaves `out` unchanged,
// if `text` has no such character. `text` must be well-formed UTF-8.
bool ReplaceNewerCharacters(absl::string_view text, std::string* out);

// Returns the older character that replaces `code`, or `code` itself if it is not newer.
char32_t OlderCharacter(char32_t code);

}  // namespace baton
