#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the character for a byte in the alphabet of byte-level BPE (GPT-2, `bytes_to_unicode`).
// Every byte has one printable character. Printable Latin-1 bytes stand for themselves. The other
// 68 bytes have the characters from U+0100 on, in order.
char32_t ByteToChar(unsigned char byte);

// Returns the bytes that `text` spells in the alphabet of byte-level BPE. Returns nullopt if a
// character is not in the alphabet. `text` must be well-formed UTF-8.
std::optional<std::string> BytesOfText(absl::string_view text);

// Returns `bytes` written in the alphabet of byte-level BPE.
std::string TextOfBytes(absl::string_view bytes);

}  // namespace baton
