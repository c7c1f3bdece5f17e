#include "common/chat/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/chat/text_case.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

// Appends "\x0a" and its like. The characters keep the origin of `c`.
void AppendEscape(OriginChar c, absl::string_view escape, TextBuilder* out) {
  for (const char e : escape) out->Append(c.WithCode(static_cast<unsigned char>(e)));
}

void AppendCharRepr(OriginChar c, char32_t quote, TextBuilder* out) {
  const char32_t code = c.code();
  if (code == quote || code == '\\') {
    out->Append(c.WithCode('\\'));
    out->Append(c);
  } else if (code == '\n') {
    AppendEscape(c, "\\n", out);
  } else if (code == '\r') {
    AppendEscape(c, "\\r", out);
  } else if (code == '\t') {
    AppendEscape(c, "\\t", out);
  } else if (IsPrintable(code)) {
    out->Append(c);
  } else if (code < 0x100) {
    AppendEscape(c, absl::StrFormat("\\x%02x", static_cast<uint32_t>(code)), out);
  } else if (code < 0x10000) {
    AppendEscape(c, absl::StrFormat("\\u%04x", static_cast<uint32_t>(code)), out);
  } else {
    AppendEscape(c, absl::StrFormat("\\U%08x", static_cast<uint32_t>(code)), out);
  }
}

void AppendTextRepr(const OriginText& text, TextBuilder* out) {
  const auto has = [&](char32_t code) {
    return std::any_of(text.chars().begin(), text.chars().end(),
                       [&](OriginChar c) { return c.code() == code; });
  };
  const char32_t quote = has('\'') && !has('"') ? '"' : '\'';
  out->Append({quote, TextOrigin::kPeople});
  for (const OriginChar c : text.chars()) {
    if (!out->meter()->ok()) return;
    AppendCharRepr(c, quote, out);
  }
  out->Append({quote, TextOrigin::kPeople});
}

void AppendItemsRepr(const std::vector<ChatValue>& items, TextBuilder* out) {
  for (size_t i = 0; i < items.size() && out->meter()->ok(); ++i) {
    if (i > 0) out->Append(", ");
    AppendRepr(items[i], out);
  }
}

void AppendEntriesRepr(const ChatDict& dict, DictViewObject::Part part, TextBuilder* out) {
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!out->meter()->ok()) return;
    if (!first) out->Append(", ");
    first = false;
    if (part == DictViewObject::Part::kItems) out->Append("(");
    if (part != DictViewObject::Part::kValues) AppendRepr(key, out);
    if (part == DictViewObject::Part::kItems) out->Append(", ");
    if (part != DictViewObject::Part::kKeys) AppendRepr(value, out);
    if (part == DictViewObject::Part::kItems) out->Append(")");
  }
}

void AppendDictRepr(const ChatDict& dict, TextBuilder* out) {
  out->Append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!out->meter()->ok()) return;
    if (!first) out->Append(", ");
    first = false;
    AppendRepr(key, out);
    out->Append(": ");
    AppendRepr(value, out);
  }
  out->Append("}");
}

void AppendRangeRepr(const RangeObject& range, TextBuilder* out) {
  out->Append(absl::StrCat("range(", range.start, ", ", range.stop));
  out->Append(range.step == 1 ? std::string(")") : absl::StrCat(", ", range.step, ")"));
}

// Writes JSON. An object, because the style goes through all levels.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, TextBuilder* out) : style_(style), out_(out) {}

  absl::Status Write(const ChatValue& value, int level) {
    RETURN_IF_ERROR(out_->meter()->status());
    switch (value.kind()) {
      case Kind::kNone:
        out_->Append("null");
        return absl::OkStatus();
      case Kind::kBool:
        out_->Append(value.AsInt() != 0 ? "true" : "false");
        return absl::OkStatus();
      case Kind::kInt:
      case Kind::kBigInt:
        AppendStr(value, out_);
        return absl::OkStatus();
      case Kind::kFloat:
        out_->Append(Float(value.AsFloat()));
        return absl::OkStatus();
      case Kind::kText:
        WriteText(value.AsText());
        return absl::OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return WriteItems(value.AsItems(), level);
      case Kind::kDict:
        return WriteDict(value.AsDict(), level);
      default:
        return absl::FailedPreconditionError(
            absl::StrCat("an object of type ", value.TypeName(), " is not JSON serializable"));
    }
  }

 private:
  static std::string Float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(value);
  }

  void WriteText(const OriginText& text) {
    out_->Append("\"");
    for (const OriginChar c : text.chars()) {
      if (!out_->meter()->ok()) return;
      WriteChar(c);
    }
    out_->Append("\"");
  }

  void WriteChar(OriginChar c) {
    const char32_t code = c.code();
    constexpr absl::string_view kEscaped = "\"\\\b\f\n\r\t";
    constexpr absl::string_view kNames = "\"\\bfnrt";
    const size_t escaped = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
    if (escaped != kEscaped.npos) {
      const char escape[] = {'\\', kNames[escaped]};
      AppendEscape(c, absl::string_view(escape, 2), out_);
    } else if (code >= 0x20 && (code < 0x7F || !style_.ensure_ascii)) {
      out_->Append(c);
    } else if (code < 0x10000) {
      AppendEscape(c, absl::StrFormat("\\u%04x", static_cast<uint32_t>(code)), out_);
    } else {
      const uint32_t rest = static_cast<uint32_t>(code) - 0x10000;
      AppendEscape(
          c, absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)),
          out_);
    }
  }

  void NewLine(int level) {
    if (!style_.has_indent) return;
    out_->Append("\n");
    for (int i = 0; i < level; ++i) out_->Append(style_.indent);
  }

  absl::Status WriteItems(const std::vector<ChatValue>& items, int level) {
    out_->Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator);
      NewLine(level + 1);
      RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_->Append("]");
    return absl::OkStatus();
  }

  absl::Status WriteKey(const ChatValue& key) {
    if (key.IsText()) {
      WriteText(key.AsText());
      return absl::OkStatus();
    }
    if (!key.IsNumber() && !key.IsNone()) {
      return absl::FailedPreconditionError(
          absl::StrCat("keys must be str, int, float, bool or None, not ", key.TypeName()));
    }
    out_->Append("\"");
    RETURN_IF_ERROR(Write(key, 0));
    out_->Append("\"");
    return absl::OkStatus();
  }

  absl::Status WriteDict(const ChatDict& dict, int level) {
    out_->Append("{");
    std::vector<const ChatDict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) RETURN_IF_ERROR(Sort(&entries));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator);
      NewLine(level + 1);
      RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_->Append(style_.key_separator);
      RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) NewLine(level);
    out_->Append("}");
    return absl::OkStatus();
  }

  absl::Status Sort(std::vector<const ChatDict::Entry*>* entries) {
    // Only keys of one type have an order, so the sort below never sees an inconsistent one.
    for (const auto* entry : *entries) {
      const bool same = entry->first.IsText()
                            ? entries->front()->first.IsText()
                            : entry->first.IsNumber() && entries->front()->first.IsNumber() &&
                                  !std::isnan(entry->first.AsFloat());
      if (!same && entries->size() > 1) {
        return absl::FailedPreconditionError("keys of different types cannot be sorted");
      }
    }
    std::stable_sort(entries->begin(), entries->end(), [&](const auto* a, const auto* b) {
      bool less = false;
      ValueLess(a->first, b->first, out_->meter(), &less);
      return less;
    });
    return out_->meter()->status();
  }

  const JsonStyle& style_;
  TextBuilder* const out_;
};

}  // namespace

bool TextBuilder::Grow(int64_t characters) {
  if (!meter_->ok()) return false;
  // The work is counted for every 16 characters, and the memory whenever the vector may grow.
  const int64_t size = static_cast<int64_t>(text_.size());
  if (((size + characters) >> 4) != (size >> 4) && !meter_->Step(1 + (characters >> 4))) {
    return false;
  }
  const int64_t needed = (size + characters) * static_cast<int64_t>(sizeof(OriginChar));
  if (needed <= charged_bytes_) return true;
  // As the vector does, takes twice as much as before.
  const int64_t more = std::max(needed, 2 * charged_bytes_) - charged_bytes_;
  if (!meter_->Allows(more)) return false;
  charged_bytes_ += more;
  return meter_->Charge(more);
}

ChatValue TextBuilder::Finish() {
  meter_->Release(std::exchange(charged_bytes_, 0));
  return MakeText(std::move(text_), meter_);
}

void TextBuilder::Append(const OriginText& text, size_t begin, size_t end) {
  if (Grow(static_cast<int64_t>(end - begin))) text_.Append(text, begin, end);
}

void TextBuilder::Append(OriginChar c) {
  if (Grow(1)) text_.Append(c);
}

void TextBuilder::Append(absl::string_view utf8) {
  if (Grow(static_cast<int64_t>(utf8.size()))) text_.Append(utf8, TextOrigin::kPeople);
}

void TextBuilder::Repeat(OriginChar c, int64_t times) {
  if (times <= 0 || times > meter_->limits().max_live_bytes || !Grow(times)) {
    if (times > 0) meter_->Allows(times);
    return;
  }
  for (int64_t i = 0; i < times; ++i) text_.Append(c);
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string shortest(buffer, end.ptr);
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return shortest;
  // The digits with no more decimals than are needed, and at least one.
  const int digits = static_cast<int>(e) - (value < 0 || std::signbit(value) ? 1 : 0);
  const int decimals = std::max(1, (digits > 1 ? digits - 2 : 0) - exponent);
  return absl::StrFormat("%.*f", decimals, value);
}

void AppendStr(const ChatValue& value, TextBuilder* out) {
  if (value.IsText()) return out->Append(value.AsText());
  if (!value.IsUndefined()) AppendRepr(value, out);
}

void AppendRepr(const ChatValue& value, TextBuilder* out) {
  if (!out->meter()->Step()) return;
  switch (value.kind()) {
    case Kind::kUndefined:
      return out->Append("Undefined");
    case Kind::kNone:
      return out->Append("None");
    case Kind::kBool:
      return out->Append(value.AsInt() != 0 ? "True" : "False");
    case Kind::kInt:
      return out->Append(absl::StrCat(value.AsInt()));
    case Kind::kBigInt:
      return out->Append(value.As<BigIntObject>().digits);
    case Kind::kFloat:
      return out->Append(FloatRepr(value.AsFloat()));
    case Kind::kText:
      if (value.IsMarkup()) out->Append("Markup(");
      AppendTextRepr(value.AsText(), out);
      return out->Append(value.IsMarkup() ? ")" : "");
    case Kind::kList:
      out->Append("[");
      AppendItemsRepr(value.AsItems(), out);
      return out->Append("]");
    case Kind::kTuple:
      out->Append("(");
      AppendItemsRepr(value.AsItems(), out);
      return out->Append(value.AsItems().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return AppendDictRepr(value.AsDict(), out);
    case Kind::kDictView: {
      const auto& view = value.As<DictViewObject>();
      out->Append(value.TypeName());
      out->Append("([");
      AppendEntriesRepr(view.dict.AsDict(), view.part, out);
      return out->Append("])");
    }
    case Kind::kRange:
      return AppendRangeRepr(value.As<RangeObject>(), out);
    default:
      return out->Append(absl::StrCat("<", value.TypeName(), ">"));
  }
}

ChatValue StrOf(const ChatValue& value, RenderMeter* meter) {
  if (value.IsText() && !value.IsMarkup()) return value;
  TextBuilder out(meter);
  AppendStr(value, &out);
  return out.Finish();
}

std::string ReprForMessage(const ChatValue& value) {
  RenderMeter meter({.max_steps = 1000, .max_live_bytes = 4096});
  TextBuilder out(&meter);
  AppendRepr(value, &out);
  OriginText text = out.TakeText();
  if (text.size() <= 100 && meter.ok()) return text.Utf8();
  return text.Part(0, std::min<size_t>(text.size(), 100)).Utf8() + "...";
}

absl::Status AppendJson(const ChatValue& value, const JsonStyle& style, TextBuilder* out) {
  return JsonWriter(style, out).Write(value, 0);
}

}  // namespace baton
