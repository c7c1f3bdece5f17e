#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// The author of a character: a person who sent a request, or the template. Text of a person must
// never pass for text of the template, so whatever is in doubt is a person's.
enum class TextOrigin { kPeople, kTemplate };

// One character and its origin.
class OriginChar {
 public:
  OriginChar(char32_t code, TextOrigin origin)
      : bits_(origin == TextOrigin::kTemplate ? code | kTemplateBit : code) {}

  char32_t code() const { return bits_ & ~kTemplateBit; }
  TextOrigin origin() const {
    return (bits_ & kTemplateBit) != 0 ? TextOrigin::kTemplate : TextOrigin::kPeople;
  }
  // Returns another character that was made from this one, such as its upper case.
  OriginChar WithCode(char32_t code) const { return {code, origin()}; }

 private:
  static constexpr uint32_t kTemplateBit = uint32_t{1} << 31;

  uint32_t bits_;
};

// Text of which each character keeps its origin. Comparisons and searches look at the characters
// alone.
class OriginText {
 public:
  OriginText() = default;
  // `utf8` must be well-formed.
  OriginText(absl::string_view utf8, TextOrigin origin) { Append(utf8, origin); }

  bool empty() const { return chars_.empty(); }
  size_t size() const { return chars_.size(); }
  OriginChar operator[](size_t i) const { return chars_[i]; }
  char32_t code(size_t i) const { return chars_[i].code(); }
  const std::vector<OriginChar>& chars() const { return chars_; }

  void Append(OriginChar c) { chars_.push_back(c); }
  void Append(const OriginText& text) {
    chars_.insert(chars_.end(), text.chars_.begin(), text.chars_.end());
  }
  // Appends the characters from `begin` up to `end` of `text`, which is another text.
  void Append(const OriginText& text, size_t begin, size_t end) {
    chars_.insert(chars_.end(), text.chars_.begin() + begin, text.chars_.begin() + end);
  }
  void Append(absl::string_view utf8, TextOrigin origin);
  OriginText Part(size_t begin, size_t end) const;
  OriginText Reversed() const;

  // Return less than 0, 0, or more than 0; and whether both are the same.
  int Compare(const OriginText& other) const;
  bool operator==(const OriginText& other) const {
    return size() == other.size() && Compare(other) == 0;
  }
  bool operator==(absl::string_view ascii) const;
  bool StartsWithAt(size_t begin, const OriginText& prefix) const;
  std::string Utf8() const;

 private:
  std::vector<OriginChar> chars_;
};

// Finds one text in others, in time that grows with the sum of their lengths (Knuth, Morris, Pratt
// 1977). Valid as long as the text that it looks for.
class OriginTextSearch {
 public:
  explicit OriginTextSearch(const OriginText& wanted);

  static constexpr size_t kNone = static_cast<size_t>(-1);
  // Returns the first place in [begin, end) of `text` that holds the whole wanted text, or kNone.
  size_t Find(const OriginText& text, size_t begin, size_t end) const;

 private:
  const OriginText& wanted_;
  std::vector<size_t> borders_;  // The longest proper border of each beginning of wanted_.
};

}  // namespace baton
