#include "common/tokenizer/vocabulary.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::Status Vocabulary::Add(absl::string_view text, TokenId id) {
  const auto known = ids_.find(text);
  if (known != ids_.end()) {
    if (known->second == id) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("token \"", absl::Utf8SafeCEscape(text),
                                                   "\" has id ", id, " here and id ", known->second,
                                                   " before"));
  }
  if (Contains(id)) {
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " is given to \"",
                                                   absl::Utf8SafeCEscape(text), "\" here and to \"",
                                                   absl::Utf8SafeCEscape(Text(id)), "\" before"));
  }
  if (id >= size()) texts_.resize(id + 1, nullptr);
  texts_[id] = &ids_.emplace(std::string(text), id).first->first;
  return absl::OkStatus();
}

std::optional<TokenId> Vocabulary::Find(absl::string_view text) const {
  const auto known = ids_.find(text);
  if (known == ids_.end()) return std::nullopt;
  return known->second;
}

void Vocabulary::Reserve(size_t tokens) { ids_.reserve(tokens); }

}  // namespace baton
