#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

// Ids at and past this are refused: the tables are dense, and the largest vocabularies in use are a
// sixteenth of it.
inline constexpr TokenId kMaxVocabSize = 1 << 22;

// Which text has which id, both ways. Texts are spelled as in the file (byte-level tokens in their
// alphabet). Built once, then constant; ids may have gaps.
class Vocabulary {
 public:
  // InvalidArgument, and nothing changed, where the text already has another id or the id another
  // text. Adding the same pair again is fine. `id` is in [0, kMaxVocabSize).
  absl::Status Add(absl::string_view text, TokenId id);

  // One past the highest id.
  TokenId size() const { return static_cast<TokenId>(texts_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size() && texts_[id] != nullptr; }
  std::optional<TokenId> Find(absl::string_view text) const;
  // Empty for an id that is no token.
  absl::string_view Text(TokenId id) const {
    return Contains(id) ? absl::string_view(*texts_[id]) : absl::string_view();
  }

  void Reserve(size_t tokens);

 private:
  absl::node_hash_map<std::string, TokenId> ids_;
  std::vector<const std::string*> texts_;  // into `ids_`, whose nodes stay where they are
};

}  // namespace baton
