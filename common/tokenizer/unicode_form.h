#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/encode_stop.h"

namespace baton {

// The normalisation forms of Unicode (UAX 15).
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Converts `text`, which must be well-formed UTF-8, to `form` as Hugging Face tokenizers does. It
// uses the tables of Unicode 9, so combining marks and decompositions added later are not changed.
// Takes O(n) time for any text of n bytes. Returns InvalidArgument if the text would become more
// than three times as long, and returns the status of `stop` if it is not OK.
absl::StatusOr<std::string> NormalizeUnicode(UnicodeForm form, absl::string_view text,
                                             EncodeStop* stop);

// Returns the smallest first byte of a character that `form` may change. If all bytes of a text are
// below it, the text does not change.
unsigned char FirstByteChangedBy(UnicodeForm form);

}  // namespace baton
