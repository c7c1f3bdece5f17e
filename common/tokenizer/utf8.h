#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";  // U+FFFD

// Returns the offset of the first byte that does not begin a well-formed UTF-8 character (Unicode,
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF). Returns nullopt if all of
// `bytes` is well-formed.
std::optional<size_t> FindInvalidUtf8(absl::string_view bytes);

struct Utf8Char {
  char32_t code;
  int bytes;  // length in UTF-8, 1 to 4
};
// Returns the character that begins at `text`, which must be well-formed.
Utf8Char DecodeUtf8(const char* text);
// Returns the last character of `text`. `text` must be well-formed and not empty.
Utf8Char DecodeLastUtf8(absl::string_view text);
// Appends a character. `code` must be a Unicode scalar value.
void AppendUtf8(char32_t code, std::string* out);

// Appends `bytes` to `out`, and replaces each maximal ill-formed part by one U+FFFD (Unicode,
// section 3.9, "U+FFFD substitution of maximal subparts"). Stops before an incomplete last
// character that more bytes could complete. Returns the number of bytes used. At most three bytes
// are not used: the beginning of a character.
size_t AppendLossyUtf8(absl::string_view bytes, std::string* out);

// Returns true for Unicode's White_Space, a set that has not changed since Unicode 6.3.
bool IsWhiteSpace(char32_t code);

}  // namespace baton
