#include "common/chat/chat_json.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxIntegerDigits = 4300;  // As Python's limit for reading integers.

class ChatJsonReader {
 public:
  ChatJsonReader(absl::string_view text, size_t* values_left)
      : text_(text), values_left_(values_left) {}

  absl::StatusOr<ChatValue> ReadAll() {
    ASSIGN_OR_RETURN(ChatValue value, Read(0));
    SkipSpaces();
    if (at_ != text_.size()) return Error("something stands behind the value");
    return value;
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("JSON, byte ", at_, ": ", what));
  }
  void SkipSpaces() {
    while (at_ < text_.size() && absl::StrContains(" \t\n\r", text_[at_])) ++at_;
  }
  bool Take(absl::string_view word) {
    if (!absl::StartsWith(text_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }

  absl::StatusOr<ChatValue> Read(int depth) {
    if (depth > kMaxValueDepth) return Error("the value nests too deeply");
    if (values_left_ != nullptr && (*values_left_)-- == 0) {
      *values_left_ = 0;
      return Error("there are too many values");
    }
    SkipSpaces();
    if (at_ == text_.size()) return Error("a value is missing");
    if (text_[at_] == '{') return ReadObject(depth);
    if (text_[at_] == '[') return ReadArray(depth);
    if (text_[at_] == '"') return ReadString();
    if (Take("null")) return ChatValue::None();
    if (Take("true")) return ChatValue::Bool(true);
    if (Take("false")) return ChatValue::Bool(false);
    if (Take("NaN")) return ChatValue::Float(std::strtod("nan", nullptr));
    if (Take("Infinity")) return ChatValue::Float(std::strtod("inf", nullptr));
    if (Take("-Infinity")) return ChatValue::Float(std::strtod("-inf", nullptr));
    return ReadNumber();
  }

  absl::StatusOr<ChatValue> ReadObject(int depth) {
    ++at_;
    std::vector<std::pair<ChatValue, ChatValue>> entries;
    SkipSpaces();
    if (Take("}")) return ChatValue::Dict(entries);
    while (true) {
      SkipSpaces();
      if (at_ == text_.size() || text_[at_] != '"') return Error("expected a key in quotes");
      ASSIGN_OR_RETURN(ChatValue key, ReadString());
      SkipSpaces();
      if (!Take(":")) return Error("expected ':'");
      ASSIGN_OR_RETURN(ChatValue value, Read(depth + 1));
      entries.emplace_back(std::move(key), std::move(value));
      SkipSpaces();
      if (Take("}")) return ChatValue::Dict(entries);
      if (!Take(",")) return Error("expected ',' or '}'");
    }
  }

  absl::StatusOr<ChatValue> ReadArray(int depth) {
    ++at_;
    std::vector<ChatValue> items;
    SkipSpaces();
    if (Take("]")) return ChatValue::List({});
    while (true) {
      ASSIGN_OR_RETURN(ChatValue item, Read(depth + 1));
      items.push_back(std::move(item));
      SkipSpaces();
      if (Take("]")) return ChatValue::List(std::move(items));
      if (!Take(",")) return Error("expected ',' or ']'");
    }
  }

  absl::StatusOr<ChatValue> ReadString() {
    ++at_;
    std::string utf8;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
      if (c != '\\') {
        utf8.push_back(c);
      } else {
        RETURN_IF_ERROR(ReadEscape(&utf8));
      }
    }
    if (!Take("\"")) return Error("a string has no end");
    return ChatValue::Text(utf8, TextOrigin::kPeople);
  }

  absl::Status ReadEscape(std::string* utf8) {
    if (at_ == text_.size()) return Error("a string has no end");
    const char c = text_[at_++];
    constexpr absl::string_view kNames = "\"\\/bfnrt";
    constexpr absl::string_view kValues = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(c); i != absl::string_view::npos) {
      utf8->push_back(kValues[i]);
      return absl::OkStatus();
    }
    if (c != 'u') return Error("an unknown escape in a string");
    ASSIGN_OR_RETURN(char32_t code, ReadHex());
    if (code >= 0xD800 && code < 0xDC00 && Take("\\u")) {
      ASSIGN_OR_RETURN(const char32_t low, ReadHex());
      if (low < 0xDC00 || low >= 0xE000) return Error("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code < 0xE000) return Error("half of a surrogate pair");
    AppendUtf8(code, utf8);
    return absl::OkStatus();
  }

  absl::StatusOr<char32_t> ReadHex() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size() || !absl::ascii_isxdigit(text_[at_])) {
        return Error("expected four hexadecimal digits");
      }
      const char c = absl::ascii_tolower(text_[at_]);
      code = code * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return code;
  }

  size_t TakeDigits() {
    const size_t begin = at_;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) ++at_;
    return at_ - begin;
  }

  absl::StatusOr<ChatValue> ReadNumber() {
    const size_t begin = at_;
    Take("-");
    const size_t first_digit = at_;
    const size_t digits = TakeDigits();
    if (digits == 0) return Error("expected a value");
    if (digits > 1 && text_[first_digit] == '0') return Error("a number begins with 0");
    bool is_float = false;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && absl::ascii_isdigit(text_[at_ + 1])) {
      is_float = true;
      ++at_;
      TakeDigits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!Take("+")) Take("-");
      if (TakeDigits() == 0) return Error("an exponent has no digits");
      is_float = true;
    }
    const std::string number(text_.substr(begin, at_ - begin));
    if (is_float) return ChatValue::Float(std::strtod(number.c_str(), nullptr));
    if (int64_t value; absl::SimpleAtoi(number, &value)) return ChatValue::Int(value);
    if (digits > kMaxIntegerDigits) return Error("an integer has more than 4300 digits");
    return ChatValue::BigInt(number);
  }

  const absl::string_view text_;
  size_t* const values_left_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<ChatValue> ParseChatJson(absl::string_view text, size_t* values_left) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("JSON that is not UTF-8");
  return ChatJsonReader(text, values_left).ReadAll();
}

}  // namespace baton
