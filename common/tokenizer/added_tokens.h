#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

// A token that is found in the text before anything else looks at it, such as <|im_start|>.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // text of a control token: only on request
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it too
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in normalised text
};

// Finds added tokens: leftmost first, of those the longest, none overlapping. Constant once filled;
// any thread. Time is O(text * longest content), which is bounded by kMaxContentBytes.
class AddedTokenMatcher {
 public:
  static constexpr size_t kMaxContentBytes = 512;

  // `pattern` is what to look for: the content, normalised where the token says so. At most
  // kMaxContentBytes and not empty. Of two tokens with one pattern the first counts.
  void Add(const AddedToken& token, absl::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Calls `piece` for each stretch of `text` in order, with the token it is, or with null where it
  // is other text. With `parse_special` false, special tokens are found and then left as text, as
  // the reference does it: a shorter token inside one stays unfound. `text` is well-formed UTF-8.
  void Split(absl::string_view text, bool parse_special,
             absl::FunctionRef<void(absl::string_view text, const AddedToken* token)> piece) const;

 private:
  static uint64_t EdgeKey(uint32_t node, unsigned char byte) { return uint64_t{node} << 8 | byte; }
  // The longest token that begins at `at`; its length in `*bytes`.
  const AddedToken* LongestAt(absl::string_view text, size_t at, size_t* bytes) const;

  std::vector<AddedToken> tokens_;
  std::bitset<256> first_bytes_;
  // A trie: node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int> ends_ = {-1};  // of each node, the index of the token that ends there
};

}  // namespace baton
