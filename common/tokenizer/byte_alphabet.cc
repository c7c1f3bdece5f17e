#include "common/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> MakeChars() {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) chars[byte] = StandsForItself(byte) ? byte : next++;
  return chars;
}
constexpr std::array<char32_t, 256> kChars = MakeChars();

constexpr std::array<int16_t, kAlphabetEnd> MakeBytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kChars[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, kAlphabetEnd> kBytes = MakeBytes();

}  // namespace

char32_t ByteToChar(unsigned char byte) { return kChars[byte]; }

std::optional<std::string> BytesOfText(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.data() + at);
    if (c.code >= kAlphabetEnd || kBytes[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[c.code]));
    at += c.bytes;
  }
  return bytes;
}

std::string TextOfBytes(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) AppendUtf8(ByteToChar(static_cast<unsigned char>(byte)), &text);
  return text;
}

}  // namespace baton
