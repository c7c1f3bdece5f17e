#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// The normalisation forms of Unicode (UAX 15).
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Converts `text`, which must be well-formed UTF-8, to `form` as the reference library does. It
// uses the tables of Unicode 9, so combining marks and decompositions added later are left alone.
// O(n log n) for any input.
std::string NormalizeUnicode(UnicodeForm form, absl::string_view text);

// Returns a byte value. Text whose bytes are all below it does not change in this form.
unsigned char FirstByteChangedBy(UnicodeForm form);

}  // namespace baton
