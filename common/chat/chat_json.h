#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat_value.h"

namespace baton {

// Reads a JSON text as Python's json.loads does: keys keep their order, a key that occurs again
// keeps its place and takes the later value, integers have any size, and NaN, Infinity and
// -Infinity are numbers. All strings, keys too, are people's. Returns InvalidArgument for a text
// that is no JSON or not UTF-8, that nests deeper than kMaxValueDepth, or that has half of a
// surrogate pair, which no UTF-8 can hold.
//
// A value takes up to a hundred times its text. `values_left`, if it is given, is the number of
// values that may be read; it is reduced by those that were. A text with more is refused.
absl::StatusOr<ChatValue> ParseChatJson(absl::string_view text, size_t* values_left = nullptr);

}  // namespace baton
