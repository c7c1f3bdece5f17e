#include "common/chat/origin_text.h"

#include <algorithm>

#include "common/tokenizer/utf8.h"

namespace baton {

void OriginText::Append(absl::string_view utf8, TextOrigin origin) {
  for (size_t i = 0; i < utf8.size();) {
    const Utf8Char c = DecodeUtf8(utf8.data() + i);
    chars_.push_back({c.code, origin});
    i += c.bytes;
  }
}

OriginText OriginText::Part(size_t begin, size_t end) const {
  OriginText part;
  part.Append(*this, begin, end);
  return part;
}

OriginText OriginText::Reversed() const {
  OriginText reversed;
  reversed.chars_.assign(chars_.rbegin(), chars_.rend());
  return reversed;
}

int OriginText::Compare(const OriginText& other) const {
  const size_t shared = std::min(size(), other.size());
  for (size_t i = 0; i < shared; ++i) {
    if (code(i) != other.code(i)) return code(i) < other.code(i) ? -1 : 1;
  }
  return size() == other.size() ? 0 : size() < other.size() ? -1 : 1;
}

bool OriginText::operator==(absl::string_view ascii) const {
  if (size() != ascii.size()) return false;
  for (size_t i = 0; i < size(); ++i) {
    if (code(i) != static_cast<unsigned char>(ascii[i])) return false;
  }
  return true;
}

bool OriginText::StartsWithAt(size_t begin, const OriginText& prefix) const {
  if (begin > size() || prefix.size() > size() - begin) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (code(begin + i) != prefix.code(i)) return false;
  }
  return true;
}

std::string OriginText::Utf8() const {
  std::string utf8;
  utf8.reserve(size());
  for (const OriginChar c : chars_) AppendUtf8(c.code(), &utf8);
  return utf8;
}

OriginTextSearch::OriginTextSearch(const OriginText& wanted)
    : wanted_(wanted), borders_(wanted.size()) {
  for (size_t i = 1, border = 0; i < wanted.size(); ++i) {
    while (border > 0 && wanted.code(i) != wanted.code(border)) border = borders_[border - 1];
    if (wanted.code(i) == wanted.code(border)) ++border;
    borders_[i] = border;
  }
}

size_t OriginTextSearch::Find(const OriginText& text, size_t begin, size_t end) const {
  if (begin > end) return kNone;
  if (wanted_.empty()) return begin;
  size_t matched = 0;
  for (size_t i = begin; i < end; ++i) {
    while (matched > 0 && text.code(i) != wanted_.code(matched)) matched = borders_[matched - 1];
    if (text.code(i) == wanted_.code(matched)) ++matched;
    if (matched == wanted_.size()) return i + 1 - matched;
  }
  return kNone;
}

}  // namespace baton
