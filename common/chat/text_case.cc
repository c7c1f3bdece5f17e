#include "common/chat/text_case.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <utf8proc.h>

namespace baton {
namespace {

struct SpecialCase {
  char32_t code;
  std::array<char32_t, 3> upper, title;
};
constexpr SpecialCase kSpecialCases[] = {
#include "common/chat/special_case.inc"
};

struct CodeRange {
  char32_t first, last;
};
// Characters that are lower or upper case without being letters of that category.
constexpr CodeRange kOtherLowercase[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},   {0x2C0, 0x2C1},   {0x2E0, 0x2E4},
    {0x345, 0x345},   {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78}, {0x1D9B, 0x1DBF},
    {0x2071, 0x2071}, {0x207F, 0x207F}, {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D}, {0xA69C, 0xA69D}, {0xA770, 0xA770}, {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}};
constexpr CodeRange kOtherUppercase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <size_t n>
bool InRanges(char32_t code, const CodeRange (&ranges)[n]) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](CodeRange range) { return range.first <= code && code <= range.last; });
}

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

const SpecialCase* FindSpecialCase(char32_t code) {
  const auto* const found =
      std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code,
                       [](const SpecialCase& special, char32_t c) { return special.code < c; });
  return found != std::end(kSpecialCases) && found->code == code ? found : nullptr;
}

void AppendCodes(const std::array<char32_t, 3>& codes, OriginChar from, OriginText* out) {
  for (const char32_t code : codes) {
    if (code != 0) out->Append(from.WithCode(code));
  }
}

void AppendUpper(OriginChar c, OriginText* out) {
  if (const SpecialCase* special = FindSpecialCase(c.code())) {
    return AppendCodes(special->upper, c, out);
  }
  out->Append(c.WithCode(utf8proc_toupper(static_cast<utf8proc_int32_t>(c.code()))));
}

void AppendTitle(OriginChar c, OriginText* out) {
  if (const SpecialCase* special = FindSpecialCase(c.code())) {
    return AppendCodes(special->title, c, out);
  }
  out->Append(c.WithCode(utf8proc_totitle(static_cast<utf8proc_int32_t>(c.code()))));
}

// True for characters that the rule of the final sigma skips.
bool IsCaseIgnorable(char32_t code) {
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      constexpr char32_t kOthers[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                      0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                      0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
      return std::find(std::begin(kOthers), std::end(kOthers), code) != std::end(kOthers);
  }
}

// Writes text in lower case, one character after the other. It knows the characters around each one
// in constant time, which the final sigma needs.
class LowerCaser {
 public:
  explicit LowerCaser(const OriginText& text) : text_(text) {}

  void AppendAt(size_t i, OriginText* out) {
    const OriginChar c = text_[i];
    if (c.code() == 0x130) {  // I with a dot.
      out->Append(c.WithCode('i'));
      out->Append(c.WithCode(0x307));
    } else if (c.code() == 0x3A3) {
      out->Append(c.WithCode(EndsWord(i) ? 0x3C2 : 0x3C3));
    } else {
      out->Append(c.WithCode(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code()))));
    }
    if (!IsCaseIgnorable(c.code())) after_cased_ = IsCased(c.code());
  }

 private:
  // Called for growing `i`. Remembers how far it looked ahead, so that a long run of marks is read
  // once.
  bool EndsWord(size_t i) {
    if (!after_cased_) return false;
    next_ = std::max(next_, i + 1);
    while (next_ < text_.size() && IsCaseIgnorable(text_.code(next_))) ++next_;
    return next_ == text_.size() || !IsCased(text_.code(next_));
  }

  const OriginText& text_;
  bool after_cased_ = false;
  size_t next_ = 0;
};

}  // namespace

OriginText UpperCase(const OriginText& text) {
  OriginText out;
  for (const OriginChar c : text.chars()) AppendUpper(c, &out);
  return out;
}

OriginText LowerCase(const OriginText& text) {
  OriginText out;
  LowerCaser lower(text);
  for (size_t i = 0; i < text.size(); ++i) lower.AppendAt(i, &out);
  return out;
}

OriginText CaseFold(const OriginText& text) {
  OriginText out;
  for (const OriginChar c : text.chars()) {
    std::array<utf8proc_int32_t, 8> folded = {};
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code()), folded.data(),
                                folded.size(), UTF8PROC_CASEFOLD, &boundary);
    for (int i = 0; i < count; ++i) out.Append(c.WithCode(static_cast<char32_t>(folded[i])));
  }
  return out;
}

OriginText SwapCase(const OriginText& text) {
  OriginText out;
  LowerCaser lower(text);
  for (size_t i = 0; i < text.size(); ++i) {
    OriginText lowered;
    lower.AppendAt(i, &lowered);
    if (IsUpperChar(text.code(i))) {
      out.Append(lowered);
    } else if (IsLowerChar(text.code(i))) {
      AppendUpper(text[i], &out);
    } else {
      out.Append(text[i]);
    }
  }
  return out;
}

OriginText Capitalize(const OriginText& text) {
  OriginText out;
  LowerCaser lower(text);
  for (size_t i = 0; i < text.size(); ++i) {
    OriginText unused;
    lower.AppendAt(i, i == 0 ? &unused : &out);
    if (i == 0) AppendTitle(text[0], &out);
  }
  return out;
}

OriginText TitleCase(const OriginText& text) {
  OriginText out;
  LowerCaser lower(text);
  bool in_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    OriginText unused;
    lower.AppendAt(i, in_word ? &out : &unused);
    if (!in_word) AppendTitle(text[i], &out);
    in_word = IsCased(text.code(i));
  }
  return out;
}

bool IsPythonSpace(char32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsLineEnd(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool IsUpperChar(char32_t code) {
  return CategoryOf(code) == UTF8PROC_CATEGORY_LU || InRanges(code, kOtherUppercase);
}

bool IsLowerChar(char32_t code) {
  return CategoryOf(code) == UTF8PROC_CATEGORY_LL || InRanges(code, kOtherLowercase);
}

bool IsTitleChar(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LT; }

bool IsCased(char32_t code) { return IsUpperChar(code) || IsLowerChar(code) || IsTitleChar(code); }

bool IsAlphaChar(char32_t code) {
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsDecimalChar(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_ND; }

int DecimalValue(char32_t code) {
  // Unicode's decimal digits come in runs of ten, and such runs may follow each other.
  char32_t first = code;
  while (IsDecimalChar(first - 1)) --first;
  return static_cast<int>((code - first) % 10);
}

bool IsDigitChar(char32_t code) {
  // Superscripts, subscripts and digits in circles are digits too.
  constexpr CodeRange kOtherDigits[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return IsDecimalChar(code) || InRanges(code, kOtherDigits);
}

bool IsNumericChar(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsAllOfCase(const OriginText& text, bool upper) {
  bool any = false;
  for (const OriginChar c : text.chars()) {
    if (!IsCased(c.code())) continue;
    if (upper ? !IsUpperChar(c.code()) : !IsLowerChar(c.code())) return false;
    any = true;
  }
  return any;
}

bool IsPrintable(char32_t code) {
  if (code == ' ') return true;
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace baton
