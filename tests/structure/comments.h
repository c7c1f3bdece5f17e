#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A comment, or another text in a source file that is written for people.
struct Comment {
  int line = 0;      // Line on which the text begins, counted from 1.
  std::string text;  // The text without comment marks, in one line.
};

// Returns the comments of a C++, CUDA or proto source. Full-line comments that follow each other
// with the same indentation are one comment; a comment after code is always a comment of its own.
std::vector<Comment> CommentsOfCode(absl::string_view source);

// Returns the comments of a source in which `#` begins a comment: CMake, shell, Python, YAML, or a
// Dockerfile. A comment after code needs white space before and after `#`, and no open quote before
// it.
std::vector<Comment> CommentsOfScript(absl::string_view source);

// Returns the C++ source with blanks in place of its comments and literals.
std::string CodeAlone(absl::string_view source);

// Returns the descriptions of the flags that a C++ source defines by ABSL_FLAG, each with the
// flag's line. A description that is not a literal is left out.
std::vector<Comment> FlagDescriptions(absl::string_view source);

// Returns the first word of a text, in lower case, without the marks and quotes before it. Empty if
// there is none.
std::string FirstWord(absl::string_view text);

}  // namespace baton
