#pragma once

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::mutations {

enum class TokenKind {
  kWord,  // a name, keyword or number
  kSymbol,
  kLiteral,    // a string or character
  kDirective,  // a preprocessor line, with its continuation lines
};

struct Token {
  TokenKind kind;
  absl::string_view text;  // view into the source
  size_t offset;           // position of its first character in the source
  int line;                // counted from 1
};

// Splits C++ code into tokens, without white space and comments. Does not support raw string
// literals. Characters that are not C++ become symbols of one character. `source` must outlive the
// result.
std::vector<Token> Tokens(absl::string_view source);

}  // namespace baton::mutations
