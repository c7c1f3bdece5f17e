#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

constexpr int64_t kMaxFormatPrecision = 2000;

absl::Status FormatError(absl::string_view what) { return absl::FailedPreconditionError(what); }

// The form in which `%` or str.format writes one value.
struct FormatSpec {
  OriginChar fill = {' ', TextOrigin::kPeople};
  char align = 0;   // < > ^ =, or 0 for the type's own.
  char sign = '-';  // - + or space.
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;  // , or _
  int64_t precision = -1;
  char type = 0;
};

std::string Digits(uint64_t value, int base) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value % base]);
    value /= base;
  } while (value > 0);
  return digits;
}

// Puts `separator` between groups of digits before the decimal point.
std::string Grouped(const std::string& number, char separator, size_t group) {
  const size_t end = std::min(number.find_first_not_of("0123456789abcdefABCDEF"), number.size());
  std::string grouped;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % group == 0) grouped.push_back(separator);
    grouped.push_back(number[i]);
  }
  return grouped + number.substr(end);
}

// Writes a padded field of people's text. `lead` is a sign or a prefix such as 0x.
void AppendPadded(const FormatSpec& spec, absl::string_view lead, absl::string_view body,
                  TextBuilder* out) {
  const int64_t padding = spec.width - static_cast<int64_t>(lead.size() + body.size());
  const int64_t before = padding <= 0 || spec.align == '<' ? 0
                         : spec.align == '^'               ? padding / 2
                                                           : padding;
  if (spec.align == '=') out->Append(lead);
  out->Repeat(spec.fill, before);
  if (spec.align != '=') out->Append(lead);
  out->Append(body);
  out->Repeat(spec.fill, padding - before);
}

void AppendNumber(const FormatSpec& spec, bool negative, absl::string_view prefix,
                  std::string digits, TextBuilder* out) {
  std::string lead = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  absl::StrAppend(&lead, prefix);
  if (spec.grouping != 0) {
    const size_t group = absl::StrContains("boxX", spec.type) && spec.type != 0 ? 4 : 3;
    const bool zeros = spec.align == '=' && spec.fill.code() == '0';
    std::string grouped = Grouped(digits, spec.grouping, group);
    // Zeros in front are grouped too.
    while (zeros && static_cast<int64_t>(lead.size() + grouped.size()) < spec.width &&
           grouped.size() < 1000) {
      digits.insert(digits.begin(), '0');
      grouped = Grouped(digits, spec.grouping, group);
    }
    digits = std::move(grouped);
  }
  AppendPadded(spec, lead, digits, out);
}

absl::Status AppendFloat(double value, FormatSpec spec, TextBuilder* out) {
  if (spec.precision > kMaxFormatPrecision) return FormatError("the precision is too large");
  const char type = spec.type == 'n' ? 'g' : spec.type;
  const double magnitude = std::fabs(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (absl::ascii_isupper(type)) digits = absl::AsciiStrToUpper(digits);
    if (type == '%') digits += "%";
  } else if (type == 0 && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else if (type == 0) {
    digits =
        absl::StrFormat("%.*g", static_cast<int>(std::max<int64_t>(spec.precision, 1)), magnitude);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  } else if (type == '%') {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    digits = absl::StrFormat("%.*f%%", precision, magnitude * 100);
  } else {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    const std::string format =
        absl::StrCat("%", spec.alternate ? "#" : "", ".*", std::string(1, type));
    // Python's precision is at most kMaxFormatPrecision here, so the buffer is large enough.
    char buffer[kMaxFormatPrecision + 400];
    const int size = std::snprintf(buffer, sizeof(buffer), format.c_str(), precision, magnitude);
    digits.assign(buffer, size);
  }
  AppendNumber(spec, std::signbit(value) && !std::isnan(value), "", std::move(digits), out);
  return absl::OkStatus();
}

absl::Status AppendInteger(const ChatValue& value, FormatSpec spec, TextBuilder* out) {
  if (value.Is(Kind::kBigInt)) {
    if (spec.type != 0 && spec.type != 'd' && spec.type != 'n') {
      return FormatError("an integer beyond 64 bits can only be written in decimal");
    }
    absl::string_view digits = value.As<BigIntObject>().digits;
    const bool negative = absl::ConsumePrefix(&digits, "-");
    AppendNumber(spec, negative, "", std::string(digits), out);
    return absl::OkStatus();
  }
  const int64_t number = value.AsInt();
  const uint64_t magnitude =
      number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
  const int base = spec.type == 'b'            ? 2
                   : spec.type == 'o'          ? 8
                   : (spec.type | 0x20) == 'x' ? 16
                                               : 10;
  std::string digits = Digits(magnitude, base);
  std::string prefix;
  if (spec.alternate && base != 10) prefix = absl::StrCat("0", std::string(1, spec.type));
  if (spec.type == 'X') digits = absl::AsciiStrToUpper(digits);
  AppendNumber(spec, number < 0, prefix, std::move(digits), out);
  return absl::OkStatus();
}

// Writes the character of a number. It is people's, as people may choose the number.
absl::StatusOr<OriginText> CharacterOf(const ChatValue& value) {
  const int64_t code = value.IsSmallInt() ? value.AsInt() : -1;
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return FormatError(absl::StrCat(ReprForMessage(value), " is the number of no character"));
  }
  OriginText text;
  text.Append({static_cast<char32_t>(code), TextOrigin::kPeople});
  return text;
}

void AppendText(const OriginText& text, const FormatSpec& spec, TextBuilder* out) {
  const auto size = static_cast<int64_t>(text.size());
  const int64_t shown = spec.precision < 0 ? size : std::min(size, spec.precision);
  const int64_t padding = spec.width - shown;
  const int64_t before = padding <= 0 || spec.align == '<' ? 0
                         : spec.align == '^'               ? padding / 2
                                                           : padding;
  out->Repeat(spec.fill, before);
  out->Append(text, 0, static_cast<size_t>(shown));
  out->Repeat(spec.fill, padding - before);
}

// Reads digits at `*at`. A number beyond what any text may have is cut down.
int64_t ReadNumber(const OriginText& text, size_t* at) {
  int64_t number = 0;
  for (; *at < text.size() && text.code(*at) >= '0' && text.code(*at) <= '9'; ++*at) {
    number = std::min<int64_t>(number * 10 + (text.code(*at) - '0'), int64_t{1} << 40);
  }
  return number;
}

bool IsOneOf(char32_t code, absl::string_view set) {
  return code < 0x80 && code != 0 && absl::StrContains(set, static_cast<char>(code));
}

// Reads what stands behind the colon of a field of str.format.
absl::StatusOr<FormatSpec> ReadSpec(const OriginText& text) {
  FormatSpec spec;
  size_t at = 0;
  const auto code = [&](size_t i) { return i < text.size() ? text.code(i) : char32_t{0}; };
  if (IsOneOf(code(1), "<>^=")) {
    // People may choose how often it is repeated, so it is theirs.
    spec.fill = {code(0), TextOrigin::kPeople};
    spec.align = static_cast<char>(code(1));
    at = 2;
  } else if (IsOneOf(code(0), "<>^=")) {
    spec.align = static_cast<char>(code(0));
    at = 1;
  }
  if (IsOneOf(code(at), "+- ")) spec.sign = static_cast<char>(code(at++));
  if (code(at) == 'z') ++at;
  if (code(at) == '#') {
    spec.alternate = true;
    ++at;
  }
  if (code(at) == '0') {
    if (spec.align == 0) spec.fill = {'0', TextOrigin::kPeople};
    if (spec.align == 0) spec.align = '0';  // '=' for numbers, '<' for texts.
    ++at;
  }
  spec.width = ReadNumber(text, &at);
  if (IsOneOf(code(at), ",_")) spec.grouping = static_cast<char>(code(at++));
  if (code(at) == '.') {
    ++at;
    if (!IsOneOf(code(at), "0123456789")) return FormatError("a format lacks its precision");
    spec.precision = ReadNumber(text, &at);
  }
  if (IsOneOf(code(at), "bcdeEfFgGnosxX%")) spec.type = static_cast<char>(code(at++));
  if (at != text.size()) {
    return FormatError(absl::StrCat("invalid format specifier '", text.Utf8(), "'"));
  }
  return spec;
}

// Writes a value as format(value, spec) does.
absl::Status AppendFormatted(const ChatValue& value, const OriginText& spec_text,
                             TextBuilder* out) {
  if (spec_text.empty()) {
    AppendStr(value, out);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(FormatSpec spec, ReadSpec(spec_text));
  const auto wrong = [&] {
    return FormatError(
        absl::StrCat("the format '", spec_text.Utf8(), "' does not fit a ", value.TypeName()));
  };
  if (value.IsText()) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.align == '=' ||
        spec.grouping != 0) {
      return wrong();
    }
    if (spec.align == 0 || spec.align == '0') spec.align = '<';
    AppendText(value.AsText(), spec, out);
    return absl::OkStatus();
  }
  if (!value.IsNumber() || spec.type == 's') return wrong();
  if (spec.align == '0') spec.align = '=';
  if (spec.align == 0) spec.align = '>';
  if (spec.type == 'c') {
    ASSIGN_OR_RETURN(const OriginText c, CharacterOf(value));
    AppendText(c, spec, out);
    return absl::OkStatus();
  }
  const bool wants_float = spec.type != 0 && absl::StrContains("eEfFgG%", spec.type);
  if (value.Is(Kind::kFloat) || wants_float) {
    if (absl::StrContains("bdoxX", spec.type) && spec.type != 0) return wrong();
    return AppendFloat(value.AsFloat(), spec, out);
  }
  if (spec.precision >= 0) return wrong();
  return AppendInteger(value, spec, out);
}

// Reads the format of str.format, as string.Formatter does in Jinja's sandbox.
class FieldFormatter {
 public:
  FieldFormatter(const CallArguments& arguments, Interpreter* interpreter)
      : arguments_(arguments), interpreter_(interpreter) {}

  absl::Status Write(const OriginText& text, int depth, TextBuilder* out) {
    if (depth > 2) return FormatError("the fields of a format are nested too deeply");
    for (size_t at = 0; at < text.size();) {
      const char32_t code = text.code(at);
      if ((code == '{' || code == '}') && at + 1 < text.size() && text.code(at + 1) == code) {
        out->Append(text[at]);
        at += 2;
      } else if (code == '}') {
        return FormatError("a format has a single '}'");
      } else if (code != '{') {
        out->Append(text[at++]);
      } else {
        const size_t end = EndOfField(text, at + 1);
        if (end == text.size()) return FormatError("a format has a '{' without '}'");
        RETURN_IF_ERROR(WriteField(text.Part(at + 1, end), depth, out));
        at = end + 1;
      }
      RETURN_IF_ERROR(interpreter_->meter()->status());
    }
    return absl::OkStatus();
  }

 private:
  static size_t EndOfField(const OriginText& text, size_t at) {
    int open = 1;
    bool in_brackets = false;
    bool in_name = true;
    for (; at < text.size(); ++at) {
      const char32_t code = text.code(at);
      if (in_name && code == '[') in_brackets = true;
      if (in_name && code == ']') in_brackets = false;
      if (in_brackets) continue;
      if (code == ':' || code == '!') in_name = false;
      if (code == '{') ++open;
      if (code == '}' && --open == 0) return at;
    }
    return text.size();
  }

  absl::Status WriteField(const OriginText& field, int depth, TextBuilder* out) {
    size_t end = 0;
    bool in_brackets = false;
    for (; end < field.size(); ++end) {
      const char32_t code = field.code(end);
      if (code == '[') in_brackets = true;
      if (code == ']') in_brackets = false;
      if (!in_brackets && (code == ':' || code == '!')) break;
    }
    ASSIGN_OR_RETURN(ChatValue value, ValueOf(field.Part(0, end)));
    if (end < field.size() && field.code(end) == '!') {
      const char32_t conversion = end + 1 < field.size() ? field.code(end + 1) : 0;
      const bool more = end + 2 < field.size();
      if ((conversion != 'r' && conversion != 's') || (more && field.code(end + 2) != ':')) {
        return FormatError("a format has an unknown conversion");
      }
      TextBuilder text(interpreter_->meter());
      conversion == 'r' ? AppendRepr(value, &text) : AppendStr(value, &text);
      value = text.Finish();
      end += 2;
    }
    TextBuilder spec(interpreter_->meter());
    if (end < field.size()) {
      RETURN_IF_ERROR(Write(field.Part(end + 1, field.size()), depth + 1, &spec));
    }
    return AppendFormatted(value, spec.TakeText(), out);
  }

  absl::StatusOr<ChatValue> First(const OriginText& name) {
    const std::string text = name.Utf8();
    int64_t index = 0;
    const bool is_number =
        !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    if (text.empty()) {
      if (next_ < 0) return FormatError("a format numbers its fields by hand and automatically");
      index = next_++;
    } else if (is_number) {
      if (next_ > 0) return FormatError("a format numbers its fields by hand and automatically");
      next_ = -1;
      if (!absl::SimpleAtoi(text, &index)) index = 1 << 20;
    } else {
      interpreter_->meter()->Step(static_cast<int64_t>(arguments_.keywords.size() / 4));
      for (const auto& [keyword, value] : arguments_.keywords) {
        if (keyword == text) return value;
      }
      return FormatError(
          absl::StrCat("a format names the argument '", text, "', which is missing"));
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      return FormatError(absl::StrCat("a format needs argument ", index, ", which is missing"));
    }
    return arguments_.positional[index];
  }

  // Reads "name.attribute[item]".
  absl::StatusOr<ChatValue> ValueOf(const OriginText& name) {
    size_t at = 0;
    while (at < name.size() && name.code(at) != '.' && name.code(at) != '[') ++at;
    ASSIGN_OR_RETURN(ChatValue value, First(name.Part(0, at)));
    while (at < name.size()) {
      const bool is_attribute = name.code(at) == '.';
      size_t end = at + 1;
      while (end < name.size() && (is_attribute ? name.code(end) != '.' && name.code(end) != '['
                                                : name.code(end) != ']')) {
        ++end;
      }
      const OriginText part = name.Part(at + 1, end);
      if (part.empty() || (!is_attribute && end == name.size())) {
        return FormatError("a field of a format has an empty attribute");
      }
      const ChatValue key = MakeText(part, interpreter_->meter());
      if (is_attribute) {
        ASSIGN_OR_RETURN(value, interpreter_->GetAttribute(value, key));
        at = end;
      } else {
        int64_t index = 0;
        const bool is_index = absl::SimpleAtoi(part.Utf8(), &index) && part.code(0) != '-';
        ASSIGN_OR_RETURN(value,
                         interpreter_->GetItem(value, is_index ? ChatValue::Int(index) : key));
        at = end + 1;
        if (at < name.size() && name.code(at) != '.' && name.code(at) != '[') {
          return FormatError("a field of a format has text behind ']'");
        }
      }
    }
    return value;
  }

  const CallArguments& arguments_;
  Interpreter* const interpreter_;
  int64_t next_ = 0;  // The next field's number, or -1 if fields are numbered by hand.
};

// Reads the format of the % operator.
class PercentFormatter {
 public:
  PercentFormatter(const OriginText& text, const ChatValue& arguments, Interpreter* interpreter)
      : text_(text), arguments_(arguments), interpreter_(interpreter), out_(interpreter->meter()) {}

  absl::StatusOr<ChatValue> Format() {
    while (at_ < text_.size()) {
      if (text_.code(at_) != '%') {
        out_.Append(text_[at_++]);
      } else {
        ++at_;
        RETURN_IF_ERROR(WriteField());
      }
      RETURN_IF_ERROR(interpreter_->meter()->status());
    }
    const bool is_mapping = arguments_.IsDict() || arguments_.Is(Kind::kList) ||
                            arguments_.Is(Kind::kRange) || arguments_.IsUndefined();
    const size_t count = arguments_.Is(Kind::kTuple) ? arguments_.AsItems().size() : 1;
    if (used_ < count && !is_mapping) return FormatError("not all arguments of % were used");
    return out_.Finish();
  }

 private:
  char32_t Code() const { return at_ < text_.size() ? text_.code(at_) : 0; }

  absl::StatusOr<ChatValue> NextArgument() {
    const bool is_tuple = arguments_.Is(Kind::kTuple);
    const size_t count = is_tuple ? arguments_.AsItems().size() : 1;
    if (used_ >= count) return FormatError("% has too few arguments");
    ++used_;
    return is_tuple ? arguments_.AsItems()[used_ - 1] : arguments_;
  }

  absl::StatusOr<int64_t> NumberOrStar() {
    if (Code() != '*') return ReadNumber(text_, &at_);
    ++at_;
    ASSIGN_OR_RETURN(const ChatValue value, NextArgument());
    if (!value.IsSmallInt()) return FormatError("* in a format needs a whole number");
    return std::clamp<int64_t>(value.AsInt(), -(int64_t{1} << 40), int64_t{1} << 40);
  }

  absl::StatusOr<std::optional<ChatValue>> NamedArgument() {
    if (Code() != '(') return std::nullopt;
    if (!arguments_.IsDict()) return FormatError("% needs a dictionary for a name in brackets");
    const size_t begin = ++at_;
    for (int open = 1; at_ < text_.size(); ++at_) {
      open += Code() == '(' ? 1 : Code() == ')' ? -1 : 0;
      if (open == 0) break;
    }
    if (at_ == text_.size()) return FormatError("a name in a format has no end");
    const ChatValue key = MakeText(text_.Part(begin, at_++), interpreter_->meter());
    const ChatValue* const found = arguments_.AsDict().Find(key, interpreter_->meter());
    if (found == nullptr) {
      return FormatError(absl::StrCat("% has no argument ", ReprForMessage(key)));
    }
    return *found;
  }

  absl::Status WriteField() {
    ASSIGN_OR_RETURN(const std::optional<ChatValue> named, NamedArgument());
    FormatSpec spec;
    spec.align = '>';
    bool zero = false;
    for (; IsOneOf(Code(), "-+ #0"); ++at_) {
      if (Code() == '-') spec.align = '<';
      if (Code() == '+') spec.sign = '+';
      if (Code() == ' ' && spec.sign != '+') spec.sign = ' ';
      if (Code() == '#') spec.alternate = true;
      if (Code() == '0') zero = true;
    }
    ASSIGN_OR_RETURN(spec.width, NumberOrStar());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (Code() == '.') {
      ++at_;
      ASSIGN_OR_RETURN(spec.precision, NumberOrStar());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (IsOneOf(Code(), "hlL")) ++at_;
    if (at_ == text_.size()) return FormatError("a format ends behind %");
    const OriginChar type = text_[at_++];
    if (type.code() == '%') {
      out_.Append(type);
      return absl::OkStatus();
    }
    ChatValue value;
    if (named.has_value()) {
      value = *named;
    } else {
      ASSIGN_OR_RETURN(value, NextArgument());
    }
    if (zero && spec.align != '<' && !IsOneOf(type.code(), "srac")) {
      spec.align = '=';
      spec.fill = {'0', TextOrigin::kPeople};
    }
    return WriteValue(type.code(), value, spec);
  }

  absl::Status WriteValue(char32_t type, const ChatValue& value, FormatSpec spec) {
    if (type == 's' || type == 'r') {
      TextBuilder text(interpreter_->meter());
      type == 's' ? AppendStr(value, &text) : AppendRepr(value, &text);
      AppendText(text.TakeText(), spec, &out_);
      return absl::OkStatus();
    }
    if (type == 'c') {
      OriginText character;
      if (value.IsText() && value.AsText().size() == 1) {
        character = value.AsText();
      } else {
        ASSIGN_OR_RETURN(character, CharacterOf(value));
      }
      spec.precision = -1;
      AppendText(character, spec, &out_);
      return absl::OkStatus();
    }
    if (!IsOneOf(type, "diuoxXeEfFgG")) return FormatError("% has an unknown type");
    if (!value.IsNumber()) {
      return FormatError(absl::StrCat("% needs a number, not ", ReprForMessage(value)));
    }
    spec.type = static_cast<char>(type);
    if (IsOneOf(type, "eEfFgG")) return AppendFloat(value.AsFloat(), spec, &out_);
    return WriteInteger(value, spec);
  }

  absl::Status WriteInteger(const ChatValue& value, FormatSpec spec) {
    ChatValue number = value;
    if (IsOneOf(spec.type, "diu")) spec.type = 'd';
    if (value.Is(Kind::kFloat)) {
      if (spec.type != 'd' || !(std::fabs(value.AsFloat()) < 9e18)) {
        return FormatError("% needs a whole number");
      }
      number = ChatValue::Int(static_cast<int64_t>(value.AsFloat()));
    }
    if (spec.precision < 0) return AppendInteger(number, spec, &out_);
    if (spec.precision > kMaxFormatPrecision) return FormatError("the precision is too large");
    // The precision is the least number of digits.
    FormatSpec plain;
    plain.type = spec.type;
    plain.width = spec.precision + (number.AsFloat() < 0 ? 1 : 0);
    plain.align = '=';
    plain.fill = {'0', TextOrigin::kPeople};
    plain.sign = spec.sign;
    plain.alternate = spec.alternate;
    TextBuilder digits(interpreter_->meter());
    RETURN_IF_ERROR(AppendInteger(number, plain, &digits));
    FormatSpec outer = spec;
    outer.precision = -1;
    if (outer.align == '=') outer.align = '>';
    if (outer.fill.code() == '0') outer.fill = {' ', TextOrigin::kPeople};
    AppendText(digits.TakeText(), outer, &out_);
    return absl::OkStatus();
  }

  const OriginText& text_;
  const ChatValue& arguments_;
  Interpreter* const interpreter_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t used_ = 0;
};

}  // namespace

absl::StatusOr<ChatValue> PercentFormat(const OriginText& text, const ChatValue& arguments,
                                        Interpreter* interpreter) {
  return PercentFormatter(text, arguments, interpreter).Format();
}

absl::StatusOr<ChatValue> StrFormat(const OriginText& text, const CallArguments& arguments,
                                    Interpreter* interpreter) {
  TextBuilder out(interpreter->meter());
  RETURN_IF_ERROR(FieldFormatter(arguments, interpreter).Write(text, 1, &out));
  return out.Finish();
}

}  // namespace baton
