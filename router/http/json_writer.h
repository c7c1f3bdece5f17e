#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Appends JSON values to a text. The caller writes the brackets, names and commas between them.
namespace baton {

// Appends a string in quotes. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(absl::string_view text, std::string* out);
// Append a number in the shortest form that reads back as the same value. An integral value has a
// fraction, as in "-9999.0", so that readers that tell integers apart see a number with a fraction.
// NaN and infinities, which JSON does not have, become null.
void AppendJsonFloat(float value, std::string* out);
void AppendJsonDouble(double value, std::string* out);
void AppendJsonInt(int64_t value, std::string* out);

}  // namespace baton
