#include "kernels/mutations/source_tokens.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace baton::mutations {
namespace {

// Symbols of more than one character. A longer symbol comes before each shorter symbol that it
// begins with.
constexpr absl::string_view kSymbols[] = {
    "<<=", ">>=", "<=>", "...", "->*", "::", "->", "++", "--", "<<", ">>", "<=", ">=",
    "==",  "!=",  "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
};

bool InWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Returns the length of the preprocessor directive at the beginning of `text`, with all lines that
// a backslash joins to it.
size_t DirectiveLength(absl::string_view text) {
  size_t end = 0;
  while (end < text.size() && (text[end] != '\n' || text[end - 1] == '\\')) ++end;
  return end;
}

size_t LiteralLength(absl::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
  return end < text.size() ? end + 1 : text.size();
}

size_t WordLength(absl::string_view text) {
  const bool number = absl::ascii_isdigit(text[0]) || text[0] == '.';
  size_t end = 1;
  while (end < text.size()) {
    const char c = text[end];
    const bool sign = (c == '+' || c == '-') && (text[end - 1] == 'e' || text[end - 1] == 'E') &&
                      !absl::StartsWithIgnoreCase(text, "0x");
    const bool separator = c == '\'' && end + 1 < text.size() && InWord(text[end + 1]);
    if (!InWord(c) && !(number && (c == '.' || sign || separator))) break;
    ++end;
  }
  return end;
}

size_t SymbolLength(absl::string_view text) {
  for (const absl::string_view symbol : kSymbols) {
    if (absl::StartsWith(text, symbol)) return symbol.size();
  }
  return 1;
}

size_t CommentLength(absl::string_view text) {
  if (absl::StartsWith(text, "//")) {
    const size_t end = text.find('\n');
    return end == absl::string_view::npos ? text.size() : end;
  }
  const size_t end = text.find("*/", 2);
  return end == absl::string_view::npos ? text.size() : end + 2;
}

}  // namespace

std::vector<Token> Tokens(absl::string_view source) {
  std::vector<Token> tokens;
  int line = 1;
  bool line_begins = true;  // only white space so far on this line
  for (size_t at = 0; at < source.size();) {
    const absl::string_view rest = source.substr(at);
    const char next = rest.size() > 1 ? rest[1] : '\0';
    size_t length = 1;
    if (absl::StartsWith(rest, "//") || absl::StartsWith(rest, "/*")) {
      length = CommentLength(rest);
    } else if (rest[0] == '\n') {
      line_begins = true;
    } else if (!absl::ascii_isspace(rest[0])) {
      TokenKind kind = TokenKind::kSymbol;
      if (rest[0] == '#' && line_begins) {
        kind = TokenKind::kDirective;
        length = DirectiveLength(rest);
      } else if (rest[0] == '"' || rest[0] == '\'') {
        kind = TokenKind::kLiteral;
        length = LiteralLength(rest);
      } else if (InWord(rest[0]) || (rest[0] == '.' && absl::ascii_isdigit(next))) {
        kind = TokenKind::kWord;
        length = WordLength(rest);
      } else {
        length = SymbolLength(rest);
      }
      tokens.push_back({kind, rest.substr(0, length), at, line});
      line_begins = false;
    }
    for (const char c : rest.substr(0, length)) line += c == '\n';
    at += length;
  }
  return tokens;
}

}  // namespace baton::mutations
