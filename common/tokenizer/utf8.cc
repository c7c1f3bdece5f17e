#include "common/tokenizer/utf8.h"

#include "common/base/json_value.h"

namespace baton {
namespace {

unsigned char Byte(absl::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

// The bytes from one position of a text: one valid character, or one maximal ill-formed part
// (Unicode, section 3.9). `size` is the number of these bytes. `cut` is true for a part that is
// ill-formed only because the text ends before the character is complete.
struct Part {
  size_t size;
  bool valid;
  bool cut;
};

Part ReadPart(absl::string_view bytes, size_t at) {
  const unsigned char lead = Byte(bytes, at);
  if (lead < 0x80) return {1, true, false};
  int following = 0;
  unsigned char low = 0x80, high = 0xBF;  // valid range of the next byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    following = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    following = 2;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    following = 3;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  size_t size = 1;
  for (int i = 0; i < following; ++i, ++size) {
    if (at + size == bytes.size()) return {size, false, true};
    const unsigned char next = Byte(bytes, at + size);
    if (next < low || next > high) return {size, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true, false};
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(absl::string_view bytes) {
  if (IsUtf8(bytes)) return std::nullopt;
  for (size_t at = 0; at < bytes.size();) {
    const Part part = ReadPart(bytes, at);
    if (!part.valid) return at;
    at += part.size;
  }
  return std::nullopt;
}

Utf8Char DecodeUtf8(const char* text) {
  const auto byte = [text](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

Utf8Char DecodeLastUtf8(absl::string_view text) {
  size_t at = text.size() - 1;
  while ((Byte(text, at) & 0xC0) == 0x80) --at;
  return DecodeUtf8(text.data() + at);
}

void AppendUtf8(char32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
  } else {
    if (code < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | code >> 12));
    } else {
      out->push_back(static_cast<char>(0xF0 | code >> 18));
      out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    }
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

size_t AppendLossyUtf8(absl::string_view bytes, std::string* out) {
  size_t at = 0;
  size_t good = 0;  // bytes before this index have been appended to `out`
  while (at < bytes.size()) {
    const Part part = ReadPart(bytes, at);
    if (!part.valid) {
      out->append(bytes.data() + good, at - good);
      if (part.cut) return at;
      out->append(kReplacementCharacter);
      good = at + part.size;
    }
    at += part.size;
  }
  out->append(bytes.data() + good, at - good);
  return at;
}

bool IsWhiteSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace baton
