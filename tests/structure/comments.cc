#include "tests/structure/comments.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

bool IsWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Joins full-line comments that follow each other with the same indentation into one comment.
class Collector {
 public:
  void FullLine(int line, size_t indent, absl::string_view text) {
    if (open_ && last_line_ + 1 == line && indent_ == indent) {
      absl::StrAppend(&found_.back().text, found_.back().text.empty() ? "" : " ", Bare(text));
    } else {
      found_.push_back({line, std::string(Bare(text))});
    }
    open_ = true;
    last_line_ = line;
    indent_ = indent;
  }
  void BehindCode(int line, absl::string_view text) {
    found_.push_back({line, std::string(Bare(text))});
    open_ = false;
  }
  std::vector<Comment> Take() { return std::move(found_); }

 private:
  static absl::string_view Bare(absl::string_view text) { return absl::StripAsciiWhitespace(text); }

  std::vector<Comment> found_;
  bool open_ = false;  // True if the last comment was a full-line comment.
  int last_line_ = 0;
  size_t indent_ = 0;
};

// Returns the position after the literal that begins at `at`, which may be a raw string.
size_t AfterLiteral(absl::string_view text, size_t at) {
  const char quote = text[at];
  if (quote == '"' && at > 0 && text[at - 1] == 'R') {
    const size_t bracket = text.find('(', at);
    if (bracket == absl::string_view::npos) return text.size();
    const std::string end = absl::StrCat(")", text.substr(at + 1, bracket - at - 1), "\"");
    const size_t closed = text.find(end, bracket);
    return closed == absl::string_view::npos ? text.size() : closed + end.size();
  }
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// Returns true if a literal begins at `at`. The apostrophe in 1'000 does not begin one.
bool BeginsLiteral(absl::string_view text, size_t at) {
  return text[at] == '"' || (text[at] == '\'' && (at == 0 || !IsWord(text[at - 1])));
}

}  // namespace

namespace {

// Walks through a C++ source. Calls `literal` with begin and end of each literal, and `comment`
// with begin and end of each comment. All other text is code.
void WalkCode(absl::string_view source, absl::FunctionRef<void(size_t, size_t)> literal,
              absl::FunctionRef<void(size_t, size_t)> comment) {
  for (size_t at = 0; at < source.size();) {
    const size_t begin = at;
    if (BeginsLiteral(source, at)) {
      at = std::min(AfterLiteral(source, at), source.size());
      literal(begin, at);
    } else if (absl::StartsWith(source.substr(at), "//")) {
      at = std::min(source.find('\n', at), source.size());
      comment(begin, at);
    } else if (absl::StartsWith(source.substr(at), "/*")) {
      at = std::min(source.find("*/", at + 2), source.size() - 2) + 2;
      comment(begin, at);
    } else {
      ++at;
    }
  }
}

}  // namespace

std::vector<Comment> CommentsOfCode(absl::string_view source) {
  Collector collector;
  int line = 1;
  size_t counted = 0;  // Position up to which line ends are counted in `line`.
  WalkCode(
      source, [](size_t, size_t) {},
      [&](size_t begin, size_t end) {
        const absl::string_view between = source.substr(counted, begin - counted);
        line += static_cast<int>(std::count(between.begin(), between.end(), '\n'));
        counted = begin;
        const size_t newline = source.substr(0, begin).rfind('\n');
        const size_t line_begin = newline == absl::string_view::npos ? 0 : newline + 1;
        const absl::string_view before = source.substr(line_begin, begin - line_begin);
        if (absl::StartsWith(source.substr(begin), "/*")) {
          std::string text;
          for (const absl::string_view part :
               absl::StrSplit(source.substr(begin + 2, end - begin - 4), '\n')) {
            absl::string_view bare = absl::StripAsciiWhitespace(part);
            absl::ConsumePrefix(&bare, "*");
            absl::StrAppend(&text, text.empty() ? "" : " ", absl::StripAsciiWhitespace(bare));
          }
          collector.BehindCode(line, text);
        } else if (absl::StripAsciiWhitespace(before).empty()) {
          collector.FullLine(line, before.size(), source.substr(begin + 2, end - begin - 2));
        } else {
          collector.BehindCode(line, source.substr(begin + 2, end - begin - 2));
        }
      });
  return collector.Take();
}

std::string CodeAlone(absl::string_view source) {
  std::string code(source);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  WalkCode(source, blank, blank);
  return code;
}

std::vector<Comment> CommentsOfScript(absl::string_view source) {
  Collector collector;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(source, '\n')) {
    ++number;
    const size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
    if (indent < line.size() && line[indent] == '#') {
      if (number == 1 && absl::StartsWith(line, "#!")) continue;
      const size_t text = std::min(line.find_first_not_of('#', indent), line.size());
      collector.FullLine(number, indent, line.substr(text));
      continue;
    }
    char quote = 0;
    for (size_t i = 1; i + 1 < line.size(); ++i) {
      const char c = line[i - 1];
      if (quote == 0 && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == quote) {
        quote = 0;
      }
      if (quote == 0 && absl::ascii_isspace(c) && line[i] == '#' &&
          absl::ascii_isspace(line[i + 1])) {
        collector.BehindCode(number, line.substr(i + 1));
        break;
      }
    }
  }
  return collector.Take();
}

std::vector<Comment> FlagDescriptions(absl::string_view source) {
  constexpr absl::string_view kFlag = "ABSL_FLAG(";
  std::vector<Comment> found;
  for (size_t flag = source.find(kFlag); flag != absl::string_view::npos;
       flag = source.find(kFlag, flag + 1)) {
    // Finds the last argument, which begins after the last comma outside of brackets and literals.
    int depth = 0;
    std::optional<size_t> last;
    size_t at = flag + kFlag.size() - 1;
    do {
      const char c = source[at];
      if (BeginsLiteral(source, at)) {
        at = AfterLiteral(source, at);
        continue;
      }
      if (c == '(' || c == '{' || c == '[') ++depth;
      if (c == ')' || c == '}' || c == ']') --depth;
      if (c == ',' && depth == 1) last = at + 1;
      ++at;
    } while (depth > 0 && at < source.size());
    if (!last) continue;
    const size_t begin = source.find_first_not_of(" \t\n", *last);
    if (begin == absl::string_view::npos || source[begin] != '"') continue;
    const auto before = source.substr(0, flag);
    found.push_back(
        {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
         std::string(source.substr(begin + 1, AfterLiteral(source, begin) - begin - 2))});
  }
  return found;
}

std::string FirstWord(absl::string_view text) {
  while (!text.empty() && !IsWord(text[0])) text.remove_prefix(1);
  size_t end = 0;
  while (end < text.size() && IsWord(text[end])) ++end;
  return absl::AsciiStrToLower(text.substr(0, end));
}

}  // namespace baton
