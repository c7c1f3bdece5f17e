#include "common/tokenizer/newer_characters.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

struct NewerRange {
  uint32_t first, last;
  uint32_t stand_in;
};
constexpr NewerRange kRanges[] = {
#include "common/tokenizer/newer_characters.inc"
};

// Has an entry for each 256 characters: true if one of them is newer than Unicode 14. Most text
// needs only this look-up.
constexpr std::array<bool, 0x1100> MakePages() {
  std::array<bool, 0x1100> pages{};
  for (const NewerRange& range : kRanges) {
    for (uint32_t page = range.first >> 8; page <= range.last >> 8; ++page) pages[page] = true;
  }
  return pages;
}
constexpr std::array<bool, 0x1100> kPages = MakePages();

// Returns the character that replaces a character newer than Unicode 14, or 0 for other characters.
uint32_t StandIn(uint32_t code) {
  if (!kPages[code >> 8]) return 0;
  const auto after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                       [](uint32_t c, const NewerRange& range) { return c < range.first; });
  if (after == std::begin(kRanges)) return 0;
  const NewerRange& range = *std::prev(after);
  return code <= range.last ? range.stand_in : 0;
}

}  // namespace

char32_t OlderCharacter(char32_t code) {
  const uint32_t stand_in = StandIn(code);
  return stand_in != 0 ? stand_in : code;
}

bool ReplaceNewerCharacters(absl::string_view text, std::string* out) {
  size_t copied = 0;
  bool replaced = false;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xC0) {
      ++at;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text.data() + at);
    if (const uint32_t stand_in = StandIn(c.code); stand_in != 0) {
      if (!replaced) out->clear();
      replaced = true;
      out->append(text.data() + copied, at - copied);
      AppendUtf8(stand_in, out);
      copied = at + c.bytes;
    }
    at += c.bytes;
  }
  if (replaced) out->append(text.data() + copied, text.size() - copied);
  return replaced;
}

}  // namespace baton
