#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/encode_stop.h"

namespace baton {

// The merges of a byte-pair encoding (Sennrich et al., ACL 2016): pairs of neighbouring tokens and
// the tokens that they become, in order of rank. Works on token ids without their text, so
// byte-level and character-level vocabularies share it. Constant once built; any thread.
class BpeMerges {
 public:
  // Gives the pair (left, right) the next rank. This replaces the rank that the pair had before.
  void Add(TokenId left, TokenId right, TokenId merged);
  void Reserve(size_t merges) { merges_.reserve(merges); }

  // Buffers of Apply. Keep them between calls to save allocations.
  struct Scratch {
    struct Symbol {
      TokenId id;  // -1 once it is merged into the symbol before it
      int32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<std::pair<uint64_t, TokenId>> heap;
  };

  // Computes which pairs CanJoin accepts. Must be called after all merges have been added.
  // `initial` holds all ids that a word can have before merging. `length` must return more for a
  // merged token than for each of the two tokens that it was merged from.
  void FindJoins(absl::Span<const TokenId> initial, absl::FunctionRef<size_t(TokenId)> length);
  // Returns true if some merge may cross the border between `left` and `right`, two neighbours in a
  // word before merging. If false, the text on each side can be merged separately.
  bool CanJoin(TokenId left, TokenId right) const { return joins_.contains(PairKey(left, right)); }

  // Merges the pair with the lowest rank, the leftmost one among equal ranks, until no pair in
  // `word` has a rank. Appends the result to `out`. O(n log n) for a word of n symbols. Returns the
  // status of `stop`; if it is not OK, `out` is unchanged.
  absl::Status Apply(absl::Span<const TokenId> word, EncodeStop* stop, Scratch* scratch,
                     std::vector<TokenId>* out) const;

 private:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };
  static uint64_t PairKey(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* Find(TokenId left, TokenId right) const;
  void ApplyShort(absl::Span<const TokenId> word, std::vector<TokenId>* out) const;
  absl::Status ApplyLong(absl::Span<const TokenId> word, EncodeStop* stop, Scratch* scratch,
                         std::vector<TokenId>* out) const;

  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_set<uint64_t> joins_;
  uint32_t next_rank_ = 0;
};

}  // namespace baton
