#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// The normalisation forms of Unicode (UAX 15).
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// `text`, well-formed UTF-8, in the form `form` as the reference library makes it: by the tables of
// Unicode 9, so that combining marks and decompositions added since then are left alone.
// O(n log n) for any input.
std::string NormalizeUnicode(UnicodeForm form, absl::string_view text);

// Whether text whose bytes are all below this one stays as it is.
unsigned char FirstByteChangedBy(UnicodeForm form);

}  // namespace baton
