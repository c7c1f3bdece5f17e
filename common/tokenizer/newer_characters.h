#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// PCRE2 10.42 knows the characters of Unicode 14, the engine that Hugging Face uses those of
// Unicode 16. Writes into `out` a copy of `text` in which each character in between is replaced by
// an older one of the same general category, the same length in UTF-8 and, where there is one, the
// same script, so that a pattern cuts both at the same bytes. False, and `out` untouched, where
// `text` (well-formed UTF-8) has none.
bool ReplaceNewerCharacters(absl::string_view text, std::string* out);

// That older character; `code` itself where it is not newer.
char32_t OlderCharacter(char32_t code);

}  // namespace baton
