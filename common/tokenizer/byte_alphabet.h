#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// The alphabet of byte-level BPE (GPT-2, `bytes_to_unicode`): one printable character for each
// byte. Printable Latin-1 bytes stand for themselves; the other 68 are U+0100 and up, in order of
// the byte.
char32_t ByteToChar(unsigned char byte);

// The bytes that `text` spells in this alphabet; nothing where a character is not of the alphabet.
// `text` is well-formed UTF-8.
std::optional<std::string> BytesOfText(absl::string_view text);

// `bytes` spelled in this alphabet.
std::string TextOfBytes(absl::string_view bytes);

}  // namespace baton
