#pragma once

namespace baton {

// The classes of characters that the reference names in code instead of in a pattern, each by the
// Unicode version that the reference takes it from.

// \w of its Rust engine: Alphabetic, M, Nd, Pc, Join_Control.
bool IsWordChar(char32_t code);
// General category N.
bool IsNumeric(char32_t code);
// Printable ASCII that is neither letter nor digit, and general category P as of Unicode 8.
bool IsPunctuation(char32_t code);

}  // namespace baton
