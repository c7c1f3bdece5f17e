#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"
#include "common/chat/text_case.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;
using Filtered = absl::StatusOr<ChatValue>;

template <OriginText (*change)(const OriginText&)>
Filtered ChangeFilter(BuiltinCall& call) {
  return MakeText(change(call.SelfText().AsText()), call.meter());
}

// Jinja's own rule: words begin behind white space, hyphens and opening brackets.
OriginText TitleOfWords(const OriginText& text) {
  OriginText out;
  const auto separates = [&](size_t i) {
    const char32_t c = text.code(i);
    return IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    const bool is_separator = separates(begin);
    while (end < text.size() && separates(end) == is_separator) ++end;
    out.Append(UpperCase(text.Part(begin, begin + 1)));
    out.Append(LowerCase(text.Part(begin + 1, end)));
    begin = end;
  }
  return out;
}

Filtered Center(BuiltinCall& call) {
  CallArguments arguments;
  ASSIGN_OR_RETURN(const int64_t width, call.Int(0, 80));
  arguments.positional.push_back(ChatValue::Int(width));
  const ChatValue text = call.SelfText();
  BuiltinCall center(&call.interpreter(), *FindBuiltin(TextMethods(), "center"), text, &arguments);
  RETURN_IF_ERROR(center.Bind());
  return FindBuiltin(TextMethods(), "center")->function(center);
}

Filtered Escape(BuiltinCall& call) {
  return EscapedText(call.self().IsText() ? call.self() : call.SelfText(), call.meter());
}

Filtered ForceEscape(BuiltinCall& call) { return EscapedText(call.SelfText(), call.meter()); }

Filtered Safe(BuiltinCall& call) { return MarkupOf(call.SelfText().AsText(), call.meter()); }

Filtered ToString(BuiltinCall& call) {
  return call.self().IsText() ? call.self() : call.SelfText();
}

Filtered FormatFilter(BuiltinCall& call) {
  const CallArguments& raw = call.raw();
  if (!raw.positional.empty() && !raw.keywords.empty()) {
    return call.Error("takes either named or unnamed arguments");
  }
  ChatValue arguments;
  if (raw.keywords.empty()) {
    arguments = MakeItems(Kind::kTuple, raw.positional, call.meter());
  } else {
    ChatDict dict;
    for (const auto& [name, value] : raw.keywords) {
      dict.Set(MakeText(name, call.meter()), value, call.meter());
    }
    arguments = MakeDict(std::move(dict), call.meter());
  }
  const ChatValue text = call.SelfText();
  return PercentFormat(text.AsText(), arguments, &call.interpreter());
}

Filtered Indent(BuiltinCall& call) {
  if (!call.self().IsText()) return call.Error("needs a text");
  ASSIGN_OR_RETURN(const bool first, call.Bool(1, false));
  ASSIGN_OR_RETURN(const bool blank, call.Bool(2, false));
  TextBuilder indentation(call.meter());
  if (call.Get(0) != nullptr && call.Get(0)->IsText()) {
    indentation.Append(call.Get(0)->AsText());
  } else {
    ASSIGN_OR_RETURN(const int64_t width, call.Int(0, 4));
    indentation.Repeat({' ', TextOrigin::kPeople}, width);
  }
  const OriginText spaces = indentation.TakeText();
  // Jinja adds a line end, so that a text that ends with one has an empty last line.
  OriginText text = call.self().AsText();
  text.Append({'\n', TextOrigin::kPeople});
  TextBuilder out(call.meter());
  if (first) out.Append(spaces);
  size_t previous_end = 0;
  bool is_first = true;
  for (const auto& [begin, end] : LinesOf(text, false)) {
    if (!is_first) {
      out.Append(text[previous_end].WithCode('\n'));
      if (blank || end > begin) out.Append(spaces);
    }
    out.Append(text, begin, end);
    is_first = false;
    previous_end = end;
    if (!call.meter()->ok()) break;
  }
  return out.Finish();
}

Filtered ReplaceFilter(BuiltinCall& call) {
  const ChatValue from = StrOf(*call.Get(0), call.meter());
  const ChatValue to = StrOf(*call.Get(1), call.meter());
  int64_t count = -1;
  if (!call.IsMissingOrNone(2)) {
    ASSIGN_OR_RETURN(count, call.Int(2));
  }
  const ChatValue text = call.SelfText();
  return ReplaceText(text.AsText(), from.AsText(), to.AsText(), count, call.meter());
}

Filtered Trim(BuiltinCall& call) {
  const ChatValue text = call.SelfText();
  if (call.IsMissingOrNone(0)) {
    return MakeText(StripText(text.AsText(), nullptr, true, true), call.meter());
  }
  ASSIGN_OR_RETURN(const OriginText chars, call.Text(0));
  return MakeText(StripText(text.AsText(), &chars, true, true), call.meter());
}

Filtered Truncate(BuiltinCall& call) {
  if (call.self().IsUndefined()) return call.self();
  if (!call.self().IsText()) return call.Error("needs a text");
  const OriginText& text = call.self().AsText();
  ASSIGN_OR_RETURN(const int64_t length, call.Int(0, 255));
  ASSIGN_OR_RETURN(const bool kill_words, call.Bool(1, false));
  ASSIGN_OR_RETURN(const OriginText end, call.Text(2, OriginText("...", TextOrigin::kPeople)));
  int64_t leeway = 5;
  if (!call.IsMissingOrNone(3)) {
    ASSIGN_OR_RETURN(leeway, call.Int(3));
  }
  const auto end_size = static_cast<int64_t>(end.size());
  const auto size = static_cast<int64_t>(text.size());
  if (length < end_size || leeway < 0) return call.Error("needs a length above that of its end");
  if (size <= length || size - length <= leeway) return call.self();
  size_t cut = static_cast<size_t>(std::min(length - end_size, size));
  if (!kill_words) {
    size_t space = cut;
    while (space > 0 && text.code(space - 1) != ' ') --space;
    if (space > 0) cut = space - 1;
  }
  TextBuilder out(call.meter());
  out.Append(text, 0, cut);
  out.Append(end);
  return out.Finish();
}

void AppendQuoted(const OriginText& text, bool in_query, TextBuilder* out) {
  for (const OriginChar c : text.chars()) {
    const char32_t code = c.code();
    const bool plain = code < 0x80 && (absl::ascii_isalnum(static_cast<char>(code)) ||
                                       absl::StrContains("_.-~", static_cast<char>(code)) ||
                                       (code == '/' && !in_query));
    if (plain && code != 0) {
      out->Append(c);
    } else if (code == ' ' && in_query) {
      out->Append(c.WithCode('+'));
    } else {
      std::string utf8;
      AppendUtf8(code, &utf8);
      for (const char byte : utf8) {
        for (const char e : absl::StrFormat("%%%02X", static_cast<unsigned char>(byte))) {
          out->Append(c.WithCode(static_cast<unsigned char>(e)));
        }
      }
    }
    if (!out->meter()->ok()) return;
  }
}

Filtered UrlEncode(BuiltinCall& call) {
  TextBuilder out(call.meter());
  const bool iterable = !call.self().IsText() && !call.self().IsNone() && !call.self().IsNumber();
  if (!iterable) {
    AppendQuoted(call.SelfText().AsText(), false, &out);
    return out.Finish();
  }
  std::vector<ChatValue> pairs;
  if (call.self().IsDict()) {
    for (const auto& [key, value] : call.self().AsDict().entries()) {
      pairs.push_back(MakeItems(Kind::kTuple, {key, value}, call.meter()));
    }
  } else {
    ASSIGN_OR_RETURN(pairs, call.interpreter().Items(call.self()));
  }
  for (const ChatValue& pair : pairs) {
    ASSIGN_OR_RETURN(const std::vector<ChatValue> items, call.interpreter().Items(pair));
    if (items.size() != 2) return call.Error("needs pairs");
    if (out.size() > 0) out.Append("&");
    AppendQuoted(StrOf(items[0], call.meter()).AsText(), true, &out);
    out.Append("=");
    AppendQuoted(StrOf(items[1], call.meter()).AsText(), true, &out);
  }
  return out.Finish();
}

Filtered WordCount(BuiltinCall& call) {
  const ChatValue text = call.SelfText();
  int64_t words = 0;
  bool in_word = false;
  for (const OriginChar c : text.AsText().chars()) {
    const char32_t code = c.code();
    const bool is_word =
        code == '_' || IsAlphaChar(code) || IsNumericChar(code) || IsDigitChar(code);
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return ChatValue::Int(words);
}

// ---- Numbers from text.

// Returns the text that int() and float() read: ASCII digits, without white space around it and
// without underscores between digits. Empty if it cannot be a number.
std::string NumberText(const OriginText& text) {
  const OriginText stripped = StripText(text, nullptr, true, true);
  std::string number;
  for (size_t i = 0; i < stripped.size(); ++i) {
    char32_t code = stripped.code(i);
    if (code >= 0x80 && IsDecimalChar(code)) code = '0' + DecimalValue(code);
    if (code >= 0x80 || code == 0) return "";
    const char c = static_cast<char>(code);
    if (c != '_') {
      number.push_back(c);
      continue;
    }
    const bool between = i > 0 && i + 1 < stripped.size() && stripped.code(i - 1) < 0x80 &&
                         stripped.code(i + 1) < 0x80 &&
                         absl::ascii_isalnum(static_cast<char>(stripped.code(i - 1))) &&
                         absl::ascii_isalnum(static_cast<char>(stripped.code(i + 1)));
    if (!between) return "";
  }
  return number;
}

std::optional<double> ParseFloat(const OriginText& text) {
  const std::string number = absl::AsciiStrToLower(NumberText(text));
  if (number.empty() || absl::StrContains(number, 'x') || absl::StrContains(number, '(') ||
      absl::ascii_isspace(static_cast<unsigned char>(number[0]))) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (*end != 0) return std::nullopt;
  return value;
}

std::optional<ChatValue> ParseInt(const OriginText& text, int base) {
  std::string number = absl::AsciiStrToLower(NumberText(text));
  const size_t sign = !number.empty() && (number[0] == '-' || number[0] == '+') ? 1 : 0;
  if (number.size() > sign + 2 && number[sign] == '0') {
    const int prefix = number[sign + 1] == 'x'   ? 16
                       : number[sign + 1] == 'o' ? 8
                       : number[sign + 1] == 'b' ? 2
                                                 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      number.erase(sign, 2);
      base = prefix;
    }
  }
  if (base == 0) base = 10;
  if (number.size() == sign || !absl::ascii_isalnum(static_cast<unsigned char>(number[sign]))) {
    return std::nullopt;
  }
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(number.c_str(), &end, base);
  if (*end != 0) return std::nullopt;
  if (errno == 0) return ChatValue::Int(value);
  if (base != 10 || number.size() > 4300) return std::nullopt;
  const size_t first = std::min(number.find_first_not_of('0', sign), number.size());
  return ChatValue::BigInt(absl::StrCat(number[0] == '-' ? "-" : "", number.substr(first)));
}

// Returns int(value) of a float, or nullopt if it is no number or infinite.
std::optional<ChatValue> IntOfFloat(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) < 9.2e18) return ChatValue::Int(static_cast<int64_t>(value));
  return ChatValue::BigInt(absl::StrFormat("%.0f", value));
}

Filtered ToInt(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t base, call.Int(1, 10));
  const ChatValue& value = call.self();
  if (value.IsUndefined()) return absl::FailedPreconditionError(value.As<UndefinedObject>().why);
  std::optional<ChatValue> number;
  if (value.IsText()) {
    if (base == 0 || (base >= 2 && base <= 36)) {
      number = ParseInt(value.AsText(), static_cast<int>(base));
    }
    const std::optional<double> as_float =
        number.has_value() ? std::nullopt : ParseFloat(value.AsText());
    if (as_float.has_value()) number = IntOfFloat(*as_float);
  } else if (value.Is(Kind::kFloat)) {
    number = IntOfFloat(value.AsFloat());
    if (!number.has_value() && std::isinf(value.AsFloat()))
      return call.Error("of an infinite number");
  } else if (value.IsSmallInt()) {
    number = ChatValue::Int(value.AsInt());
  } else if (value.Is(Kind::kBigInt)) {
    number = value;
  }
  if (number.has_value()) return *number;
  return call.Get(0) != nullptr ? *call.Get(0) : ChatValue::Int(0);
}

Filtered ToFloat(BuiltinCall& call) {
  const ChatValue& value = call.self();
  if (value.IsUndefined()) return absl::FailedPreconditionError(value.As<UndefinedObject>().why);
  if (value.IsNumber()) return ChatValue::Float(value.AsFloat());
  if (value.IsText()) {
    if (const std::optional<double> number = ParseFloat(value.AsText())) {
      return ChatValue::Float(*number);
    }
  }
  return call.Get(0) != nullptr ? *call.Get(0) : ChatValue::Float(0);
}

Filtered Abs(BuiltinCall& call) {
  const ChatValue& value = call.self();
  if (value.IsSmallInt()) {
    return value.AsInt() < 0 ? Negated(value) : ChatValue::Int(value.AsInt());
  }
  if (value.Is(Kind::kFloat)) return ChatValue::Float(std::fabs(value.AsFloat()));
  if (value.Is(Kind::kBigInt)) {
    const std::string& digits = value.As<BigIntObject>().digits;
    return ChatValue::BigInt(digits[0] == '-' ? digits.substr(1) : digits);
  }
  return call.Error(absl::StrCat("needs a number, not ", ReprForMessage(value)));
}

// Rounds half to even in decimal, as Python's round does.
double RoundDecimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision < -330) return std::copysign(0.0, value);
  if (precision >= 0) {
    return std::strtod(absl::StrFormat("%.*f", static_cast<int>(precision), value).c_str(),
                       nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Filtered RoundInt(const BuiltinCall& call, int64_t value, int64_t precision) {
  if (precision >= 0) return ChatValue::Int(value);
  if (precision < -18) return ChatValue::Int(0);
  int64_t unit = 1;
  for (int64_t i = precision; i < 0; ++i) unit *= 10;
  int64_t rest = value % unit;
  int64_t rounded = value - rest;
  rest = std::abs(rest);
  const bool up = rest > unit - rest || (rest == unit - rest && (rounded / unit) % 2 != 0);
  if (up && __builtin_add_overflow(rounded, value < 0 ? -unit : unit, &rounded)) {
    return call.Error("gives an integer beyond 64 bits");
  }
  return ChatValue::Int(rounded);
}

Filtered Round(BuiltinCall& call) {
  const ChatValue& value = call.self();
  ASSIGN_OR_RETURN(const int64_t precision, call.Int(0, 0));
  ASSIGN_OR_RETURN(const OriginText method,
                   call.Text(1, OriginText("common", TextOrigin::kPeople)));
  const bool ceil = method == "ceil";
  if (!ceil && !(method == "floor") && !(method == "common")) {
    return call.Error("has the methods common, ceil and floor");
  }
  if (!value.IsNumber())
    return call.Error(absl::StrCat("needs a number, not ", ReprForMessage(value)));
  if (method == "common") {
    if (value.IsSmallInt()) return RoundInt(call, value.AsInt(), precision);
    if (value.Is(Kind::kBigInt)) return value;
    return ChatValue::Float(RoundDecimal(value.AsFloat(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.AsFloat() * unit;
  if (!std::isfinite(scaled)) return call.Error("gives a number that is too large");
  return ChatValue::Float((ceil ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

// ---- JSON.

Filtered ToJson(BuiltinCall& call) {
  JsonStyle style;
  ASSIGN_OR_RETURN(style.ensure_ascii, call.Bool(0, false));
  ASSIGN_OR_RETURN(style.sort_keys, call.Bool(3, false));
  style.has_indent = !call.IsMissingOrNone(1);
  if (style.has_indent && call.Get(1)->IsText()) {
    style.indent = call.Get(1)->AsText();
  } else if (style.has_indent) {
    ASSIGN_OR_RETURN(const int64_t width, call.Int(1));
    TextBuilder spaces(call.meter());
    spaces.Repeat({' ', TextOrigin::kPeople}, width);
    style.indent = spaces.TakeText();
  }
  style.item_separator = OriginText(style.has_indent ? "," : ", ", TextOrigin::kPeople);
  style.key_separator = OriginText(": ", TextOrigin::kPeople);
  if (!call.IsMissingOrNone(2)) {
    ASSIGN_OR_RETURN(const std::vector<ChatValue> separators,
                     call.interpreter().Items(*call.Get(2)));
    if (separators.size() != 2 || !separators[0].IsText() || !separators[1].IsText()) {
      return call.Error("needs two texts as separators");
    }
    style.item_separator = separators[0].AsText();
    style.key_separator = separators[1].AsText();
  }
  TextBuilder out(call.meter());
  RETURN_IF_ERROR(AppendJson(call.self(), style, &out));
  return out.Finish();
}

}  // namespace

ChatValue MarkupOf(const OriginText& text, RenderMeter* meter) {
  ChatValue markup = MakeText(text, meter);
  markup.As<TextObject>().is_markup = true;
  return markup;
}

ChatValue EscapedText(const ChatValue& text, RenderMeter* meter) {
  if (text.IsMarkup()) return text;
  TextBuilder out(meter);
  for (const OriginChar c : text.AsText().chars()) {
    const absl::string_view escape = c.code() == '&'    ? "&amp;"
                                     : c.code() == '<'  ? "&lt;"
                                     : c.code() == '>'  ? "&gt;"
                                     : c.code() == '"'  ? "&#34;"
                                     : c.code() == '\'' ? "&#39;"
                                                        : "";
    if (escape.empty()) out.Append(c);
    for (const char e : escape) out.Append(c.WithCode(static_cast<unsigned char>(e)));
    if (!meter->ok()) break;
  }
  return MarkupOf(out.TakeText(), meter);
}

BuiltinTable TextFilters() {
  static constexpr Builtin kTable[] = {
      {"abs", "", 0, Abs},
      {"capitalize", "", 0, ChangeFilter<Capitalize>},
      {"center", "width", 0, Center},
      {"e", "", 0, Escape},
      {"escape", "", 0, Escape},
      {"float", "default", 0, ToFloat},
      {"forceescape", "", 0, ForceEscape},
      {"format", "*", 0, FormatFilter},
      {"indent", "width first blank", 0, Indent},
      {"int", "default base", 0, ToInt},
      {"lower", "", 0, ChangeFilter<LowerCase>},
      {"replace", "old new count", 2, ReplaceFilter},
      {"round", "precision method", 0, Round},
      {"safe", "", 0, Safe},
      {"string", "", 0, ToString},
      {"title", "", 0, ChangeFilter<TitleOfWords>},
      {"tojson", "ensure_ascii indent separators sort_keys", 0, ToJson},
      {"trim", "chars", 0, Trim},
      {"truncate", "length killwords end leeway", 0, Truncate},
      {"upper", "", 0, ChangeFilter<UpperCase>},
      {"urlencode", "", 0, UrlEncode},
      {"wordcount", "", 0, WordCount},
  };
  return kTable;
}

}  // namespace baton
