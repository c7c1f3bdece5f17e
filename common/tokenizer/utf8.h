#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";  // U+FFFD

// Offset of the first byte that begins no well-formed UTF-8 character (Unicode, table 3-7: no
// overlong forms, no surrogates, nothing past U+10FFFF); nothing where all of `bytes` is
// well-formed.
std::optional<size_t> FindInvalidUtf8(absl::string_view bytes);

struct Utf8Char {
  char32_t code;
  int bytes;  // 1 to 4
};
// The character at `text`, which must begin a well-formed one.
Utf8Char DecodeUtf8(const char* text);
// The last character before `text.end()`. `text` is well-formed and not empty.
Utf8Char DecodeLastUtf8(absl::string_view text);
// Appends the character; `code` is a Unicode scalar value.
void AppendUtf8(char32_t code, std::string* out);

// Appends `bytes` to `out`, each maximal ill-formed part as one U+FFFD (Unicode, section 3.9,
// "U+FFFD substitution of maximal subparts"). Stops before a last character that more bytes could
// complete, and returns how many bytes it has used: what is left, at most three bytes, is the
// beginning of a character.
size_t AppendLossyUtf8(absl::string_view bytes, std::string* out);

// White_Space of Unicode; the set has not changed since Unicode 6.3.
bool IsWhiteSpace(char32_t code);

}  // namespace baton
