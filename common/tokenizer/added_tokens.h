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

// A token that is found in the text before any other tokenisation step runs, such as <|im_start|>.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // a control token, found only if the caller asks for it
  bool single_word = false;  // found only if neither neighbour is a word character
  bool lstrip = false;       // the token also takes the white space before it
  bool rstrip = false;       // the token also takes the white space after it
  bool normalized = false;   // searched for in the text after normalisation
};

// Finds added tokens without overlap: at each place the longest one, from left to right. Constant
// once filled; any thread. Time is O(text * longest content); kMaxContentBytes limits the content.
class AddedTokenMatcher {
 public:
  static constexpr size_t kMaxContentBytes = 512;

  // Adds a token. `pattern` is the text to search for: the content, normalised if the token
  // requires it. It must have 1 to kMaxContentBytes bytes. If two tokens have the same pattern, the
  // one added first is found.
  void Add(const AddedToken& token, absl::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Calls `piece` for each part of `text` in order: with the token that was found there, or with
  // null for other text. Special tokens are found, but passed as text if `parse_special` returns
  // false for their bytes [begin, end) of `text`. A shorter token inside such a text is not found,
  // as in Hugging Face tokenizers, unless it is special, begins at the same byte, and may be found.
  // Stops at the first status of `piece` that is not OK, and
  // returns it. `text` must be well-formed UTF-8.
  absl::Status Split(
      absl::string_view text, absl::FunctionRef<bool(size_t begin, size_t end)> parse_special,
      absl::FunctionRef<absl::Status(absl::string_view text, const AddedToken* token)> piece) const;

 private:
  static uint64_t EdgeKey(uint32_t node, unsigned char byte) { return uint64_t{node} << 8 | byte; }
  // Returns the longest token that begins at `at`, and sets `*bytes` to the length of its text.
  // Returns null if no token begins there.
  const AddedToken* LongestAt(absl::string_view text, size_t at, size_t* bytes) const;

  std::vector<AddedToken> tokens_;
  std::bitset<256> first_bytes_;
  // Edges of a trie, whose root is node 0.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int> ends_ = {-1};  // per node: index of the token that ends there, or -1
};

}  // namespace baton
