#include "common/tokenizer/character_class.h"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

#include "absl/strings/ascii.h"
#include "common/tokenizer/newer_characters.h"

namespace baton {
namespace {

struct Range {
  char32_t first, last;
};

// Characters that became punctuation after Unicode 8. utf8proc 2.8 follows Unicode 15 and counts
// them as punctuation, so IsPunctuation must exclude them.
constexpr Range kNewerPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},
    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
    {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

bool IsNewerPunctuation(char32_t code) {
  const auto after =
      std::upper_bound(std::begin(kNewerPunctuation), std::end(kNewerPunctuation), code,
                       [](char32_t c, const Range& range) { return c < range.first; });
  return after != std::begin(kNewerPunctuation) && code <= std::prev(after)->last;
}

utf8proc_category_t Category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

bool IsWordChar(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  // Symbols that count as letters: they have Other_Alphabetic, but are in neither category L nor M.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189)) {
    return true;
  }
  switch (Category(OlderCharacter(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool IsNumeric(char32_t code) {
  if (code < 0x80) return absl::ascii_isdigit(static_cast<unsigned char>(code));
  // Numeric characters of Unicode 17. Hugging Face tokenizers classifies them with Rust's standard
  // library, which knows Unicode 17. (Its regular expressions do not.)
  if ((code >= 0x11DE0 && code <= 0x11DE9) || (code >= 0x16FF4 && code <= 0x16FF6)) return true;
  switch (Category(OlderCharacter(code))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool IsPunctuation(char32_t code) {
  if (code < 0x80) return absl::ascii_ispunct(static_cast<unsigned char>(code));
  // U+166D and U+111C9 were punctuation in Unicode 8, but are not in later versions.
  if (code == 0x166D || code == 0x111C9) return true;
  switch (Category(code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return !IsNewerPunctuation(code);
    default:
      return false;
  }
}

}  // namespace baton
