#include "common/chat/template_lexer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/chat/text_case.h"
#include "common/tokenizer/character_class.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

using Token = TemplateToken;

// Ends all lines with \n, and drops the last line's end.
std::string NormalizeLines(absl::string_view source) {
  std::string text = absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool IsNameStart(char32_t c) {
  return c == '_' ||
         (c < 0x80 ? absl::ascii_isalpha(static_cast<unsigned char>(c)) : IsWordChar(c));
}

bool IsAsciiDigit(char32_t c) { return c >= '0' && c <= '9'; }

class TemplateLexer {
 public:
  explicit TemplateLexer(absl::string_view source) {
    for (size_t i = 0; i < source.size();) {
      const Utf8Char c = DecodeUtf8(source.data() + i);
      text_.push_back(c.code);
      i += c.bytes;
    }
  }

  absl::StatusOr<std::vector<Token>> Lex() {
    while (at_ < text_.size()) RETURN_IF_ERROR(LexData());
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }
  char32_t Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0;
  }
  bool LooksAt(absl::string_view ascii, size_t ahead = 0) const {
    if (at_ + ahead + ascii.size() > text_.size()) return false;
    for (size_t i = 0; i < ascii.size(); ++i) {
      if (text_[at_ + ahead + i] != static_cast<unsigned char>(ascii[i])) return false;
    }
    return true;
  }
  void Skip(size_t count) {
    for (; count > 0; --count, ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }
  bool Take(absl::string_view ascii) {
    if (!LooksAt(ascii)) return false;
    Skip(ascii.size());
    return true;
  }
  void SkipSpaces() {
    while (at_ < text_.size() && IsPythonSpace(text_[at_])) Skip(1);
  }
  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  std::string Utf8Of(size_t begin, size_t end) const {
    std::string utf8;
    for (size_t i = begin; i < end; ++i) AppendUtf8(text_[i], &utf8);
    return utf8;
  }

  // Adds the data in [begin, end) before a tag whose sign is `sign`. A minus strips all white space
  // before the tag, and no sign strips white space that begins the tag's line.
  void AddData(size_t begin, size_t end, char sign, bool is_print) {
    if (sign == '-') {
      while (end > begin && IsPythonSpace(text_[end - 1])) --end;
    } else if (sign != '+' && !is_print) {
      size_t line_begin = end;
      while (line_begin > begin && text_[line_begin - 1] != '\n') --line_begin;
      const bool only_spaces = std::all_of(text_.begin() + line_begin, text_.begin() + end,
                                           [](char32_t c) { return IsPythonSpace(c); });
      if (only_spaces && (line_begin > begin || line_starting_)) end = line_begin;
    }
    if (end > begin) Add(Token::Kind::kData, Utf8Of(begin, end));
  }

  char TakeSign() {
    const char32_t c = Peek();
    if (c != '-' && c != '+') return 0;
    Skip(1);
    return static_cast<char>(c);
  }

  // Returns the length of "{% raw %}" if it begins here, with its signs. Otherwise 0.
  size_t RawTagLength() const {
    size_t i = 2;
    if (Peek(i) == '-' || Peek(i) == '+') ++i;
    while (IsPythonSpace(Peek(i))) ++i;
    if (!LooksAt("raw", i)) return 0;
    i += 3;
    while (IsPythonSpace(Peek(i))) ++i;
    if (LooksAt("-%}", i)) return i + 3;
    return LooksAt("%}", i) ? i + 2 : 0;
  }

  // Reads the data up to the next tag, and the tag.
  absl::Status LexData() {
    const size_t begin = at_;
    const int begin_line = line_;
    while (at_ < text_.size() && !LooksAt("{{") && !LooksAt("{%") && !LooksAt("{#")) Skip(1);
    const int tag_line = std::exchange(line_, begin_line);
    const size_t end = at_;
    if (at_ == text_.size()) {
      AddData(begin, end, '+', false);
      line_ = tag_line;
      return absl::OkStatus();
    }
    const bool is_print = LooksAt("{{");
    const char32_t sign = Peek(2) == '-' || Peek(2) == '+' ? Peek(2) : 0;
    AddData(begin, end, static_cast<char>(sign), is_print);
    line_ = tag_line;
    if (LooksAt("{#")) return LexComment();
    if (const size_t raw = is_print ? 0 : RawTagLength(); raw > 0) return LexRaw(raw);
    Skip(2);
    TakeSign();
    Add(is_print ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, "");
    return LexTag(is_print);
  }

  // Takes the end of a block or comment. A minus strips white space, and no sign strips one line
  // end. False if no such end is here.
  bool TakeEnd(absl::string_view end, bool trims_line) {
    if (LooksAt("-") && LooksAt(end, 1)) {
      Skip(1 + end.size());
      SkipSpaces();
    } else if (trims_line && LooksAt("+") && LooksAt(end, 1)) {
      Skip(1 + end.size());
    } else if (Take(end)) {
      if (trims_line) Take("\n");
    } else {
      return false;
    }
    line_starting_ = text_[at_ - 1] == '\n';
    return true;
  }

  absl::Status LexComment() {
    Skip(2);
    const absl::Status error = Error("the comment has no end");
    TakeSign();
    while (at_ < text_.size()) {
      if (TakeEnd("#}", true)) return absl::OkStatus();
      Skip(1);
    }
    return error;
  }

  absl::Status LexRaw(size_t tag_length) {
    const absl::Status error = Error("the raw block has no end");
    const bool strips = text_[at_ + tag_length - 3] == '-';
    Skip(tag_length);
    if (strips) SkipSpaces();
    line_starting_ = text_[at_ - 1] == '\n';
    const size_t begin = at_;
    for (; at_ < text_.size(); Skip(1)) {
      if (!LooksAt("{%")) continue;
      const size_t end = at_;
      const int line = line_;
      Skip(2);
      const char sign = TakeSign();
      SkipSpaces();
      if (Take("endraw")) {
        SkipSpaces();
        const bool was_line_starting = line_starting_;
        if (TakeEnd("%}", true)) {
          const bool now_line_starting = std::exchange(line_starting_, was_line_starting);
          AddData(begin, end, sign, false);
          line_starting_ = now_line_starting;
          return absl::OkStatus();
        }
      }
      at_ = end;
      line_ = line;
    }
    return error;
  }

  absl::Status LexTag(bool is_print) {
    while (at_ < text_.size()) {
      if (brackets_.empty() && TakeEnd(is_print ? "}}" : "%}", !is_print)) {
        Add(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, "");
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(LexToken());
    }
    return absl::OkStatus();  // The parser says which end is missing.
  }

  absl::Status LexToken() {
    const char32_t c = Peek();
    if (IsPythonSpace(c)) {
      SkipSpaces();
      return absl::OkStatus();
    }
    if (IsAsciiDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      const size_t begin = at_;
      while (at_ < text_.size() && (IsNameStart(text_[at_]) || IsAsciiDigit(text_[at_]))) Skip(1);
      Add(Token::Kind::kName, Utf8Of(begin, at_));
      return absl::OkStatus();
    }
    if (c == '"' || c == '\'') return LexString(c);
    return LexOperator();
  }

  // Returns the place behind digits that begin at `i`, with underscores between them.
  size_t EndOfDigits(size_t i) const {
    const auto is_digit = [&](size_t k) { return k < text_.size() && IsAsciiDigit(text_[k]); };
    while (is_digit(i) || (i < text_.size() && text_[i] == '_' && is_digit(i + 1))) ++i;
    return i;
  }

  absl::Status LexNumber() {
    const size_t begin = at_;
    size_t end = EndOfDigits(begin);
    bool is_float = false;
    const auto at = [&](size_t k) { return k < text_.size() ? text_[k] : 0; };
    if (at(end) == '.' && IsAsciiDigit(at(end + 1))) {
      is_float = true;
      end = EndOfDigits(end + 1);
    }
    if (at(end) == 'e' || at(end) == 'E') {
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if (IsAsciiDigit(at(end + 1 + sign))) {
        is_float = true;
        end = EndOfDigits(end + 1 + sign);
      }
    }
    const char32_t prefix = at(begin + 1) | 0x20;
    if (!is_float && text_[begin] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      end = begin + 2;
      while (at(end) < 0x80 && (absl::ascii_isxdigit(static_cast<char>(at(end))) || at(end) == '_'))
        ++end;
    } else if (!is_float && text_[begin] == '0') {
      end = begin + 1;  // "012" is 0 and 12, which the parser refuses.
      while (at(end) == '0') ++end;
    }
    std::string number = Utf8Of(begin, end);
    number.erase(std::remove(number.begin(), number.end(), '_'), number.end());
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(number));
    Skip(end - begin);
    return absl::OkStatus();
  }

  absl::Status LexString(char32_t quote) {
    const int line = line_;
    Skip(1);
    std::string utf8;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\') {
        RETURN_IF_ERROR(LexEscape(&utf8));
      } else {
        AppendUtf8(text_[at_], &utf8);
        Skip(1);
      }
    }
    if (at_ == text_.size()) {
      line_ = line;
      return Error("a string has no end");
    }
    Add(Token::Kind::kString, std::move(utf8));
    tokens_.back().line = line;
    Skip(1);
    return absl::OkStatus();
  }

  absl::Status LexEscape(std::string* utf8) {
    Skip(1);
    const char32_t c = Peek();
    constexpr absl::string_view kNames = "\\'\"abfnrtv";
    constexpr absl::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const size_t known = c != 0 && c < 0x80 ? kNames.find(static_cast<char>(c)) : kNames.npos;
    if (known != kNames.npos) {
      utf8->push_back(kValues[known]);
      Skip(1);
      return absl::OkStatus();
    }
    if (c == '\n') {  // A line that goes on.
      Skip(1);
      return absl::OkStatus();
    }
    if (c == 'x') return LexCode(1, 2, 16, utf8);
    if (c == 'u') return LexCode(1, 4, 16, utf8);
    if (c == 'U') return LexCode(1, 8, 16, utf8);
    if (c >= '0' && c <= '7') return LexCode(0, 3, 8, utf8);
    if (c == 'N') return Error("the escape \\N in a string is not supported");
    utf8->push_back('\\');  // As Python, an unknown escape stays as it is.
    return absl::OkStatus();
  }

  // Reads a character's number behind `skip` characters. Octal numbers may be shorter than
  // `digits`.
  absl::Status LexCode(size_t skip, int digits, uint32_t base, std::string* utf8) {
    Skip(skip);
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = Peek();
      const bool is_digit = c < 0x80 && (base == 16 ? absl::ascii_isxdigit(static_cast<char>(c))
                                                    : c >= '0' && c <= '7');
      if (!is_digit && base == 8) break;
      if (!is_digit) return Error("an escape in a string has too few digits");
      code = code * base + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      Skip(1);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return Error("an escape in a string is no character of Unicode");
    }
    AppendUtf8(code, utf8);
    return absl::OkStatus();
  }

  absl::Status LexOperator() {
    static constexpr absl::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const absl::string_view op : kOperators) {
      if (!LooksAt(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        brackets_.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets_.empty() || brackets_.back() != op[0]) {
          return Error(absl::StrCat("unexpected '", op, "'"));
        }
        brackets_.pop_back();
      }
      Add(Token::Kind::kOperator, std::string(op));
      Skip(op.size());
      return absl::OkStatus();
    }
    return Error(absl::StrCat("unexpected character '", Utf8Of(at_, at_ + 1), "'"));
  }

  std::u32string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // True if the text before at_ ends a line, or is empty.
  std::string brackets_;       // The ends of open brackets.
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source) {
  if (!IsUtf8(source)) return absl::InvalidArgumentError("the template is not UTF-8");
  return TemplateLexer(NormalizeLines(source)).Lex();
}

}  // namespace baton
