#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"
#include "common/chat/text_case.h"
#include "common/tokenizer/character_class.h"

namespace baton {

OriginText StripText(const OriginText& text, const OriginText* chars, bool left, bool right) {
  std::vector<char32_t> set;
  if (chars != nullptr) {
    for (const OriginChar c : chars->chars()) set.push_back(c.code());
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t code) {
    return chars == nullptr ? IsPythonSpace(code)
                            : std::binary_search(set.begin(), set.end(), code);
  };
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end && strips(text.code(begin))) ++begin;
  while (right && end > begin && strips(text.code(end - 1))) --end;
  return text.Part(begin, end);
}

ChatValue ReplaceText(const OriginText& text, const OriginText& from, const OriginText& to,
                      int64_t count, RenderMeter* meter) {
  TextBuilder out(meter);
  const OriginTextSearch search(from);
  size_t at = 0;
  for (int64_t done = 0; (count < 0 || done < count) && meter->ok(); ++done) {
    const size_t found = search.Find(text, at, text.size());
    if (found == OriginTextSearch::kNone) break;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
    if (!from.empty()) continue;
    // An empty text is found before each character, and behind the last one.
    if (at == text.size()) return out.Finish();
    out.Append(text[at++]);
  }
  out.Append(text, at, text.size());
  return out.Finish();
}

std::vector<std::pair<size_t, size_t>> LinesOf(const OriginText& text, bool keep_ends) {
  std::vector<std::pair<size_t, size_t>> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && !IsLineEnd(text.code(end))) ++end;
    size_t next = end;
    if (next < text.size()) ++next;
    if (next < text.size() && text.code(end) == '\r' && text.code(next) == '\n') ++next;
    lines.emplace_back(begin, keep_ends ? next : end);
    begin = next;
  }
  return lines;
}

namespace {

using Kind = ChatValue::Kind;
using Result = absl::StatusOr<ChatValue>;

const OriginText& Self(const BuiltinCall& call) { return call.self().AsText(); }

Result TextResult(const BuiltinCall& call, OriginText text) {
  return MakeText(std::move(text), call.meter());
}

// ---- Stripping and splitting.

template <bool left, bool right>
Result Strip(BuiltinCall& call) {
  if (call.IsMissingOrNone(0)) {
    return TextResult(call, StripText(Self(call), nullptr, left, right));
  }
  ASSIGN_OR_RETURN(const OriginText chars, call.Text(0));
  return TextResult(call, StripText(Self(call), &chars, left, right));
}

Result ListOfParts(const BuiltinCall& call, const OriginText& text,
                   const std::vector<std::pair<size_t, size_t>>& parts, Kind kind = Kind::kList) {
  std::vector<ChatValue> items;
  for (const auto& [begin, end] : parts) {
    if (!call.meter()->ok()) break;
    items.push_back(MakeText(text.Part(begin, end), call.meter()));
  }
  return MakeItems(kind, std::move(items), call.meter());
}

using Parts = std::vector<std::pair<size_t, size_t>>;

Parts SplitAtSpaces(const OriginText& text, int64_t max) {
  Parts parts;
  size_t at = 0;
  while (true) {
    while (at < text.size() && IsPythonSpace(text.code(at))) ++at;
    if (at == text.size()) return parts;
    const size_t begin = at;
    const bool rest = max >= 0 && static_cast<int64_t>(parts.size()) == max;
    while (at < text.size() && (rest || !IsPythonSpace(text.code(at)))) ++at;
    parts.emplace_back(begin, at);
  }
}

Parts SplitAtText(const OriginText& text, const OriginText& separator, int64_t max) {
  Parts parts;
  const OriginTextSearch search(separator);
  size_t at = 0;
  while (max < 0 || static_cast<int64_t>(parts.size()) < max) {
    const size_t found = search.Find(text, at, text.size());
    if (found == OriginTextSearch::kNone) break;
    parts.emplace_back(at, found);
    at = found + separator.size();
  }
  parts.emplace_back(at, text.size());
  return parts;
}

template <bool from_right>
Result Split(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t max, call.Int(1, -1));
  const OriginText& text = Self(call);
  Parts parts;
  // A split from the right is one of the reversed text.
  if (call.IsMissingOrNone(0)) {
    parts = SplitAtSpaces(from_right ? text.Reversed() : text, max);
  } else {
    ASSIGN_OR_RETURN(const OriginText separator, call.Text(0));
    if (separator.empty()) return call.Error("needs a separator that is not empty");
    parts = from_right ? SplitAtText(text.Reversed(), separator.Reversed(), max)
                       : SplitAtText(text, separator, max);
  }
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
    for (auto& [begin, end] : parts) {
      std::swap(begin, end);
      begin = text.size() - begin;
      end = text.size() - end;
    }
  }
  return ListOfParts(call, text, parts);
}

Result SplitLines(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const bool keep_ends, call.Bool(0, false));
  return ListOfParts(call, Self(call), LinesOf(Self(call), keep_ends));
}

// Returns the first place of `wanted`, or the last one.
size_t FindText(const OriginText& text, const OriginText& wanted, size_t begin, size_t end,
                bool last) {
  if (!last) return OriginTextSearch(wanted).Find(text, begin, end);
  if (begin > end) return OriginTextSearch::kNone;
  const OriginText reversed = wanted.Reversed();
  const size_t found =
      OriginTextSearch(reversed).Find(text.Reversed(), text.size() - end, text.size() - begin);
  return found == OriginTextSearch::kNone ? found : text.size() - found - wanted.size();
}

template <bool last>
Result Partition(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText separator, call.Text(0));
  if (separator.empty()) return call.Error("needs a separator that is not empty");
  const OriginText& text = Self(call);
  const size_t n = text.size();
  const size_t found = FindText(text, separator, 0, n, last);
  if (found == OriginTextSearch::kNone) {
    return ListOfParts(call, text,
                       last ? Parts{{0, 0}, {0, 0}, {0, n}} : Parts{{0, n}, {n, n}, {n, n}},
                       Kind::kTuple);
  }
  const size_t end = found + separator.size();
  std::vector<ChatValue> items = {MakeText(text.Part(0, found), call.meter()),
                                  MakeText(separator, call.meter()),
                                  MakeText(text.Part(end, n), call.meter())};
  return MakeItems(Kind::kTuple, std::move(items), call.meter());
}

// ---- Searching.

// Reads the arguments `start` and `end` from parameter `first` on, as Python clamps them.
absl::Status ReadRange(const BuiltinCall& call, size_t first, size_t* begin, size_t* end) {
  const auto length = static_cast<int64_t>(Self(call).size());
  for (size_t i = 0; i < 2; ++i) {
    if (call.IsMissingOrNone(first + i)) continue;
    ASSIGN_OR_RETURN(int64_t place, call.Int(first + i));
    if (place < 0) place = std::max<int64_t>(place + length, 0);
    if (i == 0) {
      *begin = static_cast<size_t>(std::min(place, length + 1));
    } else {
      *end = static_cast<size_t>(std::min(place, length));
    }
  }
  return absl::OkStatus();
}

template <bool last, bool must_exist>
Result Find(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText wanted, call.Text(0));
  size_t begin = 0;
  size_t end = Self(call).size();
  RETURN_IF_ERROR(ReadRange(call, 1, &begin, &end));
  const size_t found = FindText(Self(call), wanted, begin, end, last);
  if (found != OriginTextSearch::kNone) return ChatValue::Int(static_cast<int64_t>(found));
  if (must_exist) return call.Error("did not find the text");
  return ChatValue::Int(-1);
}

Result CountText(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText wanted, call.Text(0));
  size_t begin = 0;
  size_t end = Self(call).size();
  RETURN_IF_ERROR(ReadRange(call, 1, &begin, &end));
  int64_t count = 0;
  const OriginTextSearch search(wanted);
  while (begin <= end) {
    const size_t found = search.Find(Self(call), begin, end);
    if (found == OriginTextSearch::kNone) break;
    ++count;
    begin = found + std::max<size_t>(wanted.size(), 1);
  }
  return ChatValue::Int(count);
}

template <bool at_end>
Result HasAffix(BuiltinCall& call) {
  size_t begin = 0;
  size_t end = Self(call).size();
  RETURN_IF_ERROR(ReadRange(call, 1, &begin, &end));
  const ChatValue& wanted = *call.Get(0);
  const bool is_tuple = wanted.Is(Kind::kTuple);
  if (!is_tuple && !wanted.IsText()) return call.Error("needs a text or a tuple of texts");
  const std::vector<ChatValue> one = {wanted};
  for (const ChatValue& affix : is_tuple ? wanted.AsItems() : one) {
    if (!affix.IsText()) return call.Error("needs a text or a tuple of texts");
    const OriginText& text = affix.AsText();
    call.meter()->Characters(static_cast<int64_t>(text.size()));
    if (begin > end || text.size() > end - begin) continue;
    const size_t place = at_end ? end - text.size() : begin;
    if (Self(call).StartsWithAt(place, text)) return ChatValue::Bool(true);
  }
  return ChatValue::Bool(false);
}

template <bool at_end>
Result RemoveAffix(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText affix, call.Text(0));
  const OriginText& text = Self(call);
  if (affix.size() > text.size()) return call.self();
  const size_t place = at_end ? text.size() - affix.size() : 0;
  if (!text.StartsWithAt(place, affix)) return call.self();
  return TextResult(call, at_end ? text.Part(0, place) : text.Part(affix.size(), text.size()));
}

Result Replace(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText from, call.Text(0));
  ASSIGN_OR_RETURN(const OriginText to, call.Text(1));
  ASSIGN_OR_RETURN(const int64_t count, call.Int(2, -1));
  return ReplaceText(Self(call), from, to, count, call.meter());
}

// ---- Padding.

enum class Side { kLeft, kRight, kBoth };

template <Side text_side>
Result Justify(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t width, call.Int(0));
  ASSIGN_OR_RETURN(const OriginText fill, call.Text(1, OriginText(" ", TextOrigin::kPeople)));
  if (fill.size() != 1) return call.Error("needs one character to fill with");
  const int64_t padding = std::max<int64_t>(width - static_cast<int64_t>(Self(call).size()), 0);
  const int64_t left = text_side == Side::kLeft    ? 0
                       : text_side == Side::kRight ? padding
                                                   : padding / 2 + (padding & width & 1);
  TextBuilder out(call.meter());
  out.Repeat(fill[0], left);
  out.Append(Self(call));
  out.Repeat(fill[0], padding - left);
  return out.Finish();
}

Result ZeroFill(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t width, call.Int(0));
  const OriginText& text = Self(call);
  const size_t sign = !text.empty() && (text.code(0) == '-' || text.code(0) == '+') ? 1 : 0;
  TextBuilder out(call.meter());
  out.Append(text, 0, sign);
  out.Repeat({'0', TextOrigin::kPeople}, width - static_cast<int64_t>(text.size()));
  out.Append(text, sign, text.size());
  return out.Finish();
}

Result ExpandTabs(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t width, call.Int(0, 8));
  TextBuilder out(call.meter());
  int64_t column = 0;
  for (const OriginChar c : Self(call).chars()) {
    if (c.code() == '\t') {
      const int64_t spaces = width > 0 ? width - column % width : 0;
      out.Repeat(c.WithCode(' '), spaces);
      column += spaces;
    } else {
      out.Append(c);
      column = c.code() == '\n' || c.code() == '\r' ? 0 : column + 1;
    }
    if (!call.meter()->ok()) break;
  }
  return out.Finish();
}

// ---- Cases and classes.

template <OriginText (*change)(const OriginText&)>
Result Change(BuiltinCall& call) {
  return TextResult(call, change(Self(call)));
}

template <bool (*is)(char32_t)>
Result AllAre(BuiltinCall& call) {
  const auto& chars = Self(call).chars();
  return ChatValue::Bool(!chars.empty() && std::all_of(chars.begin(), chars.end(),
                                                       [](OriginChar c) { return is(c.code()); }));
}

bool IsAlphanumeric(char32_t code) {
  return IsAlphaChar(code) || IsDecimalChar(code) || IsDigitChar(code) || IsNumericChar(code);
}

Result IsAscii(BuiltinCall& call) {
  const auto& chars = Self(call).chars();
  return ChatValue::Bool(
      std::all_of(chars.begin(), chars.end(), [](OriginChar c) { return c.code() < 0x80; }));
}

Result IsPrintableText(BuiltinCall& call) {
  const auto& chars = Self(call).chars();
  return ChatValue::Bool(
      std::all_of(chars.begin(), chars.end(), [](OriginChar c) { return IsPrintable(c.code()); }));
}

Result IsIdentifier(BuiltinCall& call) {
  const OriginText& text = Self(call);
  bool is = !text.empty() && (text.code(0) == '_' || IsAlphaChar(text.code(0)));
  // Marks, digits and underscores may follow the first letter; joiners may not.
  for (const OriginChar c : text.chars()) {
    is &= IsWordChar(c.code()) && c.code() != 0x200C && c.code() != 0x200D;
  }
  return ChatValue::Bool(is);
}

Result IsUpperText(BuiltinCall& call) { return ChatValue::Bool(IsAllOfCase(Self(call), true)); }
Result IsLowerText(BuiltinCall& call) { return ChatValue::Bool(IsAllOfCase(Self(call), false)); }

Result IsTitleText(BuiltinCall& call) {
  bool in_word = false;
  bool any = false;
  for (const OriginChar c : Self(call).chars()) {
    const bool begins = IsUpperChar(c.code()) || IsTitleChar(c.code());
    if ((begins && in_word) || (IsLowerChar(c.code()) && !in_word)) return ChatValue::Bool(false);
    in_word = IsCased(c.code());
    any |= in_word;
  }
  return ChatValue::Bool(any);
}

// ---- Joining and formatting.

Result Join(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const std::vector<ChatValue> items, call.interpreter().Items(*call.Get(0)));
  TextBuilder out(call.meter());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsText()) return call.Error("can only join texts");
    if (i > 0) out.Append(Self(call));
    out.Append(items[i].AsText());
  }
  return out.Finish();
}

Result Format(BuiltinCall& call) { return StrFormat(Self(call), call.raw(), &call.interpreter()); }

Result FormatMap(BuiltinCall& call) {
  if (!call.Get(0)->IsDict()) return call.Error("needs a dictionary");
  CallArguments arguments;
  for (const auto& [key, value] : call.Get(0)->AsDict().entries()) {
    if (key.IsText()) arguments.keywords.emplace_back(key.AsText().Utf8(), value);
  }
  return StrFormat(Self(call), arguments, &call.interpreter());
}

}  // namespace

BuiltinTable TextMethods() {
  static constexpr Builtin kTable[] = {
      {"capitalize", "", 0, Change<Capitalize>},
      {"casefold", "", 0, Change<CaseFold>},
      {"center", "/width fill", 1, Justify<Side::kBoth>},
      {"count", "/sub start end", 1, CountText},
      {"endswith", "/suffix start end", 1, HasAffix<true>},
      {"expandtabs", "tabsize", 0, ExpandTabs},
      {"find", "/sub start end", 1, Find<false, false>},
      {"format", "*", 0, Format},
      {"format_map", "/mapping", 1, FormatMap},
      {"index", "/sub start end", 1, Find<false, true>},
      {"isalnum", "", 0, AllAre<IsAlphanumeric>},
      {"isalpha", "", 0, AllAre<IsAlphaChar>},
      {"isascii", "", 0, IsAscii},
      {"isdecimal", "", 0, AllAre<IsDecimalChar>},
      {"isdigit", "", 0, AllAre<IsDigitChar>},
      {"isidentifier", "", 0, IsIdentifier},
      {"islower", "", 0, IsLowerText},
      {"isnumeric", "", 0, AllAre<IsNumericChar>},
      {"isprintable", "", 0, IsPrintableText},
      {"isspace", "", 0, AllAre<IsPythonSpace>},
      {"istitle", "", 0, IsTitleText},
      {"isupper", "", 0, IsUpperText},
      {"join", "/iterable", 1, Join},
      {"ljust", "/width fill", 1, Justify<Side::kLeft>},
      {"lower", "", 0, Change<LowerCase>},
      {"lstrip", "/chars", 0, Strip<true, false>},
      {"partition", "/sep", 1, Partition<false>},
      {"removeprefix", "/prefix", 1, RemoveAffix<false>},
      {"removesuffix", "/suffix", 1, RemoveAffix<true>},
      {"replace", "/old new count", 2, Replace},
      {"rfind", "/sub start end", 1, Find<true, false>},
      {"rindex", "/sub start end", 1, Find<true, true>},
      {"rjust", "/width fill", 1, Justify<Side::kRight>},
      {"rpartition", "/sep", 1, Partition<true>},
      {"rsplit", "sep maxsplit", 0, Split<true>},
      {"rstrip", "/chars", 0, Strip<false, true>},
      {"split", "sep maxsplit", 0, Split<false>},
      {"splitlines", "keepends", 0, SplitLines},
      {"startswith", "/prefix start end", 1, HasAffix<false>},
      {"strip", "/chars", 0, Strip<true, true>},
      {"swapcase", "", 0, Change<SwapCase>},
      {"title", "", 0, Change<TitleCase>},
      {"upper", "", 0, Change<UpperCase>},
      {"zfill", "/width", 1, ZeroFill},
  };
  return kTable;
}

}  // namespace baton
