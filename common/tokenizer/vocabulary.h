#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

// Ids must be below this limit, because the tables have an entry for every id. The limit is 16
// times the size of the largest vocabularies in use.
inline constexpr TokenId kMaxVocabSize = 1 << 22;

// Maps texts of tokens to ids, and ids to texts. Texts are spelled as in tokenizer.json: byte-level
// tokens use the byte alphabet. Built once, then constant. Ids may have gaps.
class Vocabulary {
 public:
  // Adds a token. Returns InvalidArgument, and changes nothing, if the text already has another id,
  // or if the id already has another text. Adding the same pair again is allowed. `id` must be in
  // [0, kMaxVocabSize).
  absl::Status Add(absl::string_view text, TokenId id);

  // Returns the highest id plus one.
  TokenId size() const { return static_cast<TokenId>(texts_.size()); }
  // Returns the number of tokens. It is less than size() if ids are left out.
  size_t count() const { return ids_.size(); }
  bool Contains(TokenId id) const { return id >= 0 && id < size() && texts_[id] != nullptr; }
  std::optional<TokenId> Find(absl::string_view text) const;
  // Returns "" for an unknown id.
  absl::string_view Text(TokenId id) const {
    return Contains(id) ? absl::string_view(*texts_[id]) : absl::string_view();
  }

  void Reserve(size_t tokens);

 private:
  absl::node_hash_map<std::string, TokenId> ids_;
  std::vector<const std::string*> texts_;  // points into `ids_`, whose nodes never move
};

}  // namespace baton
