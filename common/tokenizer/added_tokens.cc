#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/character_class.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

bool TouchesWord(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordChar(DecodeLastUtf8(text.substr(0, begin)).code)) return true;
  return end < text.size() && IsWordChar(DecodeUtf8(text.data() + end).code);
}

}  // namespace

void AddedTokenMatcher::Add(const AddedToken& token, absl::string_view pattern) {
  BATON_CHECK(!pattern.empty() && pattern.size() <= kMaxContentBytes) << pattern.size();
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto [edge, created] =
        edges_.try_emplace(EdgeKey(node, c), static_cast<uint32_t>(ends_.size()));
    if (created) ends_.push_back(-1);
    node = edge->second;
  }
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<int>(tokens_.size());
  first_bytes_.set(static_cast<unsigned char>(pattern[0]));
  tokens_.push_back(token);
}

const AddedToken* AddedTokenMatcher::LongestAt(absl::string_view text, size_t at,
                                               size_t* bytes) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] < 0) continue;
    longest = &tokens_[ends_[node]];
    *bytes = i + 1 - at;
  }
  return longest;
}

absl::Status AddedTokenMatcher::Split(
    absl::string_view text, absl::FunctionRef<bool(size_t, size_t)> parse_special,
    absl::FunctionRef<absl::Status(absl::string_view, const AddedToken*)> piece) const {
  size_t handed = 0;  // `piece` has been called for the text before this index
  size_t at = 0;
  // End of the white space that the last token with `rstrip` took. Tokens made of white space are
  // found again and again within this space. To scan the space anew for each of them would be
  // quadratic.
  size_t spaces_end = 0;
  while (!tokens_.empty() && at < text.size()) {
    size_t bytes = 0;
    const AddedToken* token = nullptr;
    if (first_bytes_[static_cast<unsigned char>(text[at])]) token = LongestAt(text, at, &bytes);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + bytes;
    at = end;
    // A special token that begins in the template's text and ends in a person's is refused, but a
    // shorter one may be the template's.
    while (token != nullptr && token->special && !parse_special(begin, end)) {
      token = LongestAt(text.substr(0, end - 1), begin, &bytes);
      if (token != nullptr && !token->special) token = nullptr;
      end = begin + bytes;
    }
    if (token == nullptr) continue;
    at = end;
    if (token->single_word && TouchesWord(text, begin, end)) continue;
    // If an earlier token has `rstrip`, it also took the white space that follows it. This white
    // space may include the first characters of the present token.
    begin = std::max(begin, handed);
    if (token->lstrip) {
      while (begin > handed) {
        const Utf8Char before = DecodeLastUtf8(text.substr(0, begin));
        if (!IsWhiteSpace(before.code)) break;
        begin -= before.bytes;
      }
    }
    if (token->rstrip) {
      if (end >= spaces_end) {
        spaces_end = end;
        while (spaces_end < text.size()) {
          const Utf8Char behind = DecodeUtf8(text.data() + spaces_end);
          if (!IsWhiteSpace(behind.code)) break;
          spaces_end += behind.bytes;
        }
      }
      end = spaces_end;
    }
    if (begin > handed) {
      RETURN_IF_ERROR(piece(text.substr(handed, begin - handed), nullptr));
    }
    end = std::max(end, begin);
    RETURN_IF_ERROR(piece(text.substr(begin, end - begin), token));
    handed = end;
  }
  return handed < text.size() ? piece(text.substr(handed), nullptr) : absl::OkStatus();
}

}  // namespace baton
