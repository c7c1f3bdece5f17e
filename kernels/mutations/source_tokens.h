#pragma once

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::mutations {

enum class TokenKind {
  kWord,  // a name, keyword or number
  kSymbol,
  kLiteral,    // a string or character
  kDirective,  // a line of the preprocessor, with its continuations
};

struct Token {
  TokenKind kind;
  absl::string_view text;  // part of the source
  size_t offset;           // of its first character in the source
  int line;                // counted from 1
};

// Returns the tokens of C++ code, without white space and comments. Does not know raw string
// literals. What is not C++ becomes symbols of one character. `source` must outlive the result.
std::vector<Token> Tokens(absl::string_view source);

}  // namespace baton::mutations
