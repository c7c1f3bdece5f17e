#include "router/http/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

// The treatment of each byte of a string: kPlain copies it, kUtf8 begins a check for UTF-8, kEscape
// writes \u00XX, and any other value is the letter after the backslash.
constexpr char kPlain = 0, kUtf8 = 1, kEscape = 2;

constexpr std::array<char, 256> StringBytes() {
  std::array<char, 256> bytes = {};
  for (size_t i = 0; i < 0x20; ++i) bytes[i] = kEscape;
  for (size_t i = 0x80; i < 0x100; ++i) bytes[i] = kUtf8;
  bytes['"'] = '"';
  bytes['\\'] = '\\';
  bytes['\n'] = 'n';
  bytes['\r'] = 'r';
  bytes['\t'] = 't';
  bytes['\b'] = 'b';
  bytes['\f'] = 'f';
  bytes[0x7F] = kEscape;  // Terminals take DEL for a control character.
  return bytes;
}
constexpr std::array<char, 256> kStringBytes = StringBytes();

template <typename T>
void AppendReal(T value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  std::array<char, 32> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const absl::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
  out->append(text.data(), text.size());
  if (text.find_first_of(".e") == absl::string_view::npos) out->append(".0");
}

}  // namespace

void AppendJsonString(absl::string_view text, std::string* out) {
  out->push_back('"');
  size_t begin = 0;  // First byte that was not appended yet.
  size_t at = 0;
  // Appends the bytes that need no change.
  const auto append_plain = [&] { out->append(text.data() + begin, at - begin); };
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const char kind = kStringBytes[byte];
    if (kind == kPlain) {
      ++at;
    } else if (kind == kUtf8) {
      size_t end = at + 1;
      while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
      const absl::string_view run = text.substr(at, end - at);
      if (FindInvalidUtf8(run)) {
        append_plain();
        // A character that the end of the run cuts off can't be completed any more.
        if (AppendLossyUtf8(run, out) < run.size()) out->append(kReplacementCharacter);
        begin = end;
      }
      at = end;
    } else {
      append_plain();
      out->push_back('\\');
      if (kind == kEscape) {
        out->append("u00");
        out->push_back(kHexDigits[byte >> 4]);
        out->push_back(kHexDigits[byte & 15]);
      } else {
        out->push_back(kind);
      }
      begin = ++at;
    }
  }
  append_plain();
  out->push_back('"');
}

void AppendJsonFloat(float value, std::string* out) { AppendReal(value, out); }
void AppendJsonDouble(double value, std::string* out) { AppendReal(value, out); }

void AppendJsonInt(int64_t value, std::string* out) {
  std::array<char, 24> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), static_cast<size_t>(end - digits.data()));
}

}  // namespace baton
