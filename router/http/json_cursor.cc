#include "router/http/json_cursor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

#include "absl/strings/charconv.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr size_t kShownBytes = 60;

// Returns an integer if all of `text` is its digits.
template <typename T>
std::optional<T> PlainInteger(absl::string_view text) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Returns an integer that is written as a fraction or with an exponent.
template <typename T>
std::optional<T> WholeDouble(const JsonCursor::Number& number) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const std::optional<double> value = number.Double();
  if (!value || std::trunc(*value) != *value || std::abs(*value) > kExact) return std::nullopt;
  if (*value < 0 && !std::numeric_limits<T>::is_signed) return std::nullopt;
  return static_cast<T>(*value);
}

// Cuts a text for a message, on a whole character.
absl::string_view Shortened(absl::string_view text) {
  if (text.size() <= kShownBytes) return text;
  size_t shown = kShownBytes;
  while (shown > 0 && (text[shown] & 0xC0) == 0x80) --shown;
  return text.substr(0, shown);
}

}  // namespace

std::string JsonPath::ToString() const {
  const std::string before = parent != nullptr ? parent->ToString() : "";
  if (key.empty() && parent != nullptr) return absl::StrCat(before, "[", index, "]");
  const std::string name = absl::Utf8SafeCEscape(Shortened(key));
  return before.empty() ? name : absl::StrCat(before, ".", name);
}

std::optional<int64_t> JsonCursor::Number::Int() const {
  const auto plain = PlainInteger<int64_t>(text);
  return plain ? plain : WholeDouble<int64_t>(*this);
}

std::optional<uint64_t> JsonCursor::Number::UInt() const {
  const auto plain = PlainInteger<uint64_t>(text);
  return plain ? plain : WholeDouble<uint64_t>(*this);
}

std::optional<double> JsonCursor::Number::Double() const {
  double value = 0;
  absl::from_chars(text.data(), text.data() + text.size(), value);
  // A value that is too small becomes 0 or the smallest double. A value that is too large becomes
  // infinity or, with an error, the largest double.
  constexpr double kMax = std::numeric_limits<double>::max();
  if (!(std::abs(value) < kMax)) return std::nullopt;
  return value;
}

absl::Status JsonCursor::Error(absl::string_view message) const {
  const absl::string_view before = text_.substr(0, at_);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return absl::InvalidArgumentError(absl::StrCat("the body is not valid JSON: line ",
                                                 std::count(before.begin(), before.end(), '\n') + 1,
                                                 ", byte ", at_ - line_begin + 1, ": ", message));
}

absl::Status JsonCursor::Expected(absl::string_view wanted) const {
  if (at_ >= text_.size()) {
    return Error(absl::StrCat("the text ends, but ", wanted, " has to follow"));
  }
  const auto byte = static_cast<unsigned char>(text_[at_]);
  const size_t length = byte < 0x80 ? 1 : static_cast<size_t>(DecodeUtf8(&text_[at_]).bytes);
  return Error(absl::StrCat("there is '", absl::Utf8SafeCHexEscape(text_.substr(at_, length)),
                            "' instead of ", wanted));
}

absl::Status JsonCursor::CheckUtf8() const {
  if (IsUtf8(text_)) return absl::OkStatus();
  JsonCursor wrong(text_);
  wrong.at_ = FindInvalidUtf8(text_).value_or(0);
  return wrong.Error(absl::StrCat(
      "the byte 0x", absl::Hex(static_cast<unsigned char>(text_[wrong.at_])), " is not UTF-8"));
}

void JsonCursor::SkipSpace() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

JsonCursor::Kind JsonCursor::Peek() {
  SkipSpace();
  if (at_ >= text_.size()) return Kind::kNothing;
  switch (text_[at_]) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return AtDigit() || At('-') ? Kind::kNumber : Kind::kNothing;
  }
}

std::string JsonCursor::Describe() {
  JsonCursor ahead = *this;
  switch (Peek()) {
    case Kind::kObject:
      return "an object";
    case Kind::kArray:
      return "a list";
    case Kind::kString: {
      std::string value;
      if (!ahead.ReadString(&value).ok()) return "a string";
      const absl::string_view shown = Shortened(value);
      return absl::StrCat("\"", absl::Utf8SafeCEscape(shown),
                          shown.size() < value.size() ? "\"..." : "\"");
    }
    case Kind::kNumber: {
      Number value;
      if (!ahead.ReadNumber(&value).ok()) return "a number";
      const absl::string_view shown = Shortened(value.text);
      return absl::StrCat(shown, shown.size() < value.text.size() ? "..." : "");
    }
    case Kind::kBool:
      return At('t') ? "true" : "false";
    case Kind::kNull:
      return "null";
    case Kind::kNothing:
      break;
  }
  return "nothing";
}

absl::Status JsonCursor::ReadWord(absl::string_view word) {
  if (text_.substr(at_, word.size()) != word) return Expected("a value");
  at_ += word.size();
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadNull() {
  SkipSpace();
  return ReadWord("null");
}

absl::Status JsonCursor::ReadBool(bool* value) {
  SkipSpace();
  *value = At('t');
  return ReadWord(*value ? "true" : "false");
}

absl::Status JsonCursor::ReadNumber(Number* value) {
  SkipSpace();
  const size_t begin = at_;
  if (At('-')) ++at_;
  if (At('0')) {
    ++at_;
    if (AtDigit()) return Expected("a fraction: a number has no leading zeros");
  } else if (AtDigit()) {
    while (AtDigit()) ++at_;
  } else {
    return Expected(at_ > begin ? "a digit" : "a value");
  }
  if (At('.')) {
    ++at_;
    if (!AtDigit()) return Expected("a digit");
    while (AtDigit()) ++at_;
  }
  if (At('e') || At('E')) {
    ++at_;
    if (At('+') || At('-')) ++at_;
    if (!AtDigit()) return Expected("a digit");
    while (AtDigit()) ++at_;
  }
  value->text = text_.substr(begin, at_ - begin);
  return absl::OkStatus();
}

std::optional<uint32_t> JsonCursor::ReadHex4() {
  if (text_.size() - at_ < 4) return std::nullopt;
  uint32_t value = 0;
  const char* const begin = text_.data() + at_;
  if (std::from_chars(begin, begin + 4, value, 16).ptr != begin + 4) return std::nullopt;
  at_ += 4;
  return value;
}

absl::Status JsonCursor::ReadEscape(std::string* value) {
  // Beside \u, each escape is one letter. The bytes that they stand for are in the same order.
  constexpr absl::string_view kLetters = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
  ++at_;
  if (At('u')) {
    ++at_;
    std::optional<uint32_t> code = ReadHex4();
    if (!code) return Expected("four hexadecimal digits");
    if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const std::optional<uint32_t> low = ReadHex4();
      if (!low) return Expected("four hexadecimal digits");
      if (*low < 0xDC00 || *low > 0xDFFF) {
        return Error(absl::StrCat("\\u", absl::Hex(*code), " is half of a character"));
      }
      code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (*code >= 0xD800 && *code <= 0xDFFF) {
      return Error(absl::StrCat("\\u", absl::Hex(*code), " is half of a character"));
    }
    AppendUtf8(static_cast<char32_t>(*code), value);
    return absl::OkStatus();
  }
  const size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : absl::string_view::npos;
  if (letter == absl::string_view::npos) return Expected("one of \"\\/bfnrtu after a backslash");
  value->push_back(kBytes[letter]);
  ++at_;
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadString(std::string* value) {
  SkipSpace();
  if (!At('"')) return Expected("a string");
  ++at_;
  value->clear();
  while (true) {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20) {
      ++at_;
    }
    value->append(text_.data() + begin, at_ - begin);
    if (At('"')) break;
    if (!At('\\')) {
      return Expected(at_ < text_.size() ? "an escape: a string has no control characters"
                                         : "the end of the string");
    }
    RETURN_IF_ERROR(ReadEscape(value));
  }
  ++at_;
  return absl::OkStatus();
}

absl::Status JsonCursor::Enter(char bracket, absl::string_view name) {
  SkipSpace();
  if (!At(bracket)) return Expected(name);
  if (depth_ == kMaxDepth) {
    return Error(absl::StrCat("values are nested deeper than ", kMaxDepth, " levels"));
  }
  ++depth_;
  ++at_;
  SkipSpace();
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadSeparator(char closing, bool* more) {
  SkipSpace();
  *more = At(',');
  if (!*more && !At(closing)) return Expected(closing == '}' ? "',' or '}'" : "',' or ']'");
  ++at_;
  if (!*more) --depth_;
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadObject(absl::FunctionRef<absl::Status(absl::string_view key)> visit) {
  RETURN_IF_ERROR(Enter('{', "an object"));
  bool more = !At('}');
  if (!more) return ReadSeparator('}', &more);
  std::string key;
  while (more) {
    SkipSpace();
    if (!At('"')) return Expected("a name in double quotes");
    RETURN_IF_ERROR(ReadString(&key));
    SkipSpace();
    if (!At(':')) return Expected("':'");
    ++at_;
    RETURN_IF_ERROR(visit(key));
    RETURN_IF_ERROR(ReadSeparator('}', &more));
  }
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadArray(absl::FunctionRef<absl::Status(size_t index)> visit) {
  RETURN_IF_ERROR(Enter('[', "a list"));
  bool more = !At(']');
  if (!more) return ReadSeparator(']', &more);
  for (size_t index = 0; more; ++index) {
    RETURN_IF_ERROR(visit(index));
    RETURN_IF_ERROR(ReadSeparator(']', &more));
  }
  return absl::OkStatus();
}

absl::Status JsonCursor::Skip() {
  Number number;
  bool flag;
  std::string text;
  switch (Peek()) {
    case Kind::kObject:
      return ReadObject([this](absl::string_view) { return Skip(); });
    case Kind::kArray:
      return ReadArray([this](size_t) { return Skip(); });
    case Kind::kString:
      return ReadString(&text);
    case Kind::kBool:
      return ReadBool(&flag);
    case Kind::kNull:
      return ReadNull();
    case Kind::kNumber:
    case Kind::kNothing:
      return ReadNumber(&number);
  }
  return absl::OkStatus();
}

absl::Status JsonCursor::Skip(absl::string_view* text) {
  SkipSpace();
  const size_t begin = at_;
  RETURN_IF_ERROR(Skip());
  *text = text_.substr(begin, at_ - begin);
  return absl::OkStatus();
}

absl::Status JsonCursor::ReadEnd() {
  SkipSpace();
  if (at_ < text_.size()) return Expected("the end of the body");
  return absl::OkStatus();
}

}  // namespace baton
