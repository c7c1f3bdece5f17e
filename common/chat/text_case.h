#pragma once

#include "common/chat/origin_text.h"

namespace baton {

// Cases and classes of characters as Python's str has them. A changed character keeps the origin of
// the character that it was made from.

OriginText UpperCase(const OriginText& text);
OriginText LowerCase(const OriginText& text);
OriginText CaseFold(const OriginText& text);
OriginText SwapCase(const OriginText& text);
// Makes the first character title case, and the others lower case.
OriginText Capitalize(const OriginText& text);
// Makes the first letter of each run of letters title case.
OriginText TitleCase(const OriginText& text);

// True for white space, which str.strip strips.
bool IsPythonSpace(char32_t code);
// True for characters at which str.splitlines ends a line.
bool IsLineEnd(char32_t code);
bool IsCased(char32_t code);
bool IsUpperChar(char32_t code);
bool IsLowerChar(char32_t code);
bool IsTitleChar(char32_t code);
bool IsAlphaChar(char32_t code);
bool IsDecimalChar(char32_t code);
int DecimalValue(char32_t code);  // 0 to 9, for a character that IsDecimalChar.
bool IsDigitChar(char32_t code);
bool IsNumericChar(char32_t code);
// Returns what str.isupper or str.islower returns.
bool IsAllOfCase(const OriginText& text, bool upper);
// True for characters that repr shows as it is.
bool IsPrintable(char32_t code);

}  // namespace baton
