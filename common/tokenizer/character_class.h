#pragma once

namespace baton {

// Character classes that Hugging Face tokenizers defines in code instead of in a pattern. Each
// class follows the same version of Unicode as Hugging Face tokenizers does for this class.

// Returns true for \w of the regex engine that Hugging Face tokenizers uses: Alphabetic, M, Nd, Pc,
// Join_Control.
bool IsWordChar(char32_t code);
// Returns true for general category N.
bool IsNumeric(char32_t code);
// Returns true for printable ASCII that is neither letter nor digit, and for general category P of
// Unicode 8.
bool IsPunctuation(char32_t code);

}  // namespace baton
