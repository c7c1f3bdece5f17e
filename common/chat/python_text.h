#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat_value.h"

namespace baton {

// Builds a text whose memory and work are counted while it grows, so that a small expression cannot
// make a huge text.
class TextBuilder {
 public:
  explicit TextBuilder(RenderMeter* meter) : meter_(meter) {}
  ~TextBuilder() { meter_->Release(charged_bytes_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  RenderMeter* meter() const { return meter_; }
  size_t size() const { return text_.size(); }
  // Append characters. Do nothing once a bound has been reached.
  void Append(const OriginText& text) { Append(text, 0, text.size()); }
  void Append(const OriginText& text, size_t begin, size_t end);
  void Append(OriginChar c);
  void Append(absl::string_view utf8);  // The text is people's.
  void Repeat(OriginChar c, int64_t times);
  // Takes the text that was built.
  ChatValue Finish();
  OriginText TakeText() { return std::move(text_); }

 private:
  bool Grow(int64_t characters);

  RenderMeter* const meter_;
  OriginText text_;
  int64_t charged_bytes_ = 0;
};

// Returns a float as Python's repr writes it: 1.0, 1e+16, nan.
std::string FloatRepr(double value);

// Append a value as Python's str and repr write it. Numbers, names and brackets are people's text.
void AppendStr(const ChatValue& value, TextBuilder* out);
void AppendRepr(const ChatValue& value, TextBuilder* out);
ChatValue StrOf(const ChatValue& value, RenderMeter* meter);
// Returns the text of repr for an error message, shortened.
std::string ReprForMessage(const ChatValue& value);

// The form in which `tojson` writes. Separators and indentation keep their origin.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  OriginText indent;  // The indentation of one level.
  OriginText item_separator, key_separator;
};
// Appends a value as Python's json.dumps writes it. Returns FailedPrecondition for a value that
// JSON does not have.
absl::Status AppendJson(const ChatValue& value, const JsonStyle& style, TextBuilder* out);

}  // namespace baton
