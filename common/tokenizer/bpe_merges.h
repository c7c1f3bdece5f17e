#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

// The merges of a byte-pair encoding (Sennrich et al., ACL 2016) over token ids: which neighbours
// become which token, the most important first. Knows no text, so byte-level and character-level
// vocabularies share it. Constant once built; any thread.
class BpeMerges {
 public:
  // Gives the pair (left, right) the next rank; a pair that had one loses it.
  void Add(TokenId left, TokenId right, TokenId merged);
  void Reserve(size_t merges) { merges_.reserve(merges); }

  // Buffers of Apply, kept between calls by whoever calls it often.
  struct Scratch {
    struct Symbol {
      TokenId id;  // -1 once it is part of the symbol before it
      int32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<std::pair<uint64_t, TokenId>> heap;
  };

  // Finds out which symbols can end up side by side in one token. Call it when all merges are
  // there. `initial` are all ids that a word not yet merged can have; what a merge makes has a
  // greater `length` than both its sides.
  void FindJoins(absl::Span<const TokenId> initial, absl::FunctionRef<size_t(TokenId)> length);
  // Whether merging ever reaches across the border of these two neighbours of a word not yet
  // merged. Where it does not, both sides can be merged apart.
  bool CanJoin(TokenId left, TokenId right) const { return joins_.contains(PairKey(left, right)); }

  // Merges `word` until no pair has a rank, always the lowest rank and of these the leftmost, and
  // appends what is left. O(n log n) for a word of n symbols.
  void Apply(absl::Span<const TokenId> word, Scratch* scratch, std::vector<TokenId>* out) const;

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
  void ApplyLong(absl::Span<const TokenId> word, Scratch* scratch, std::vector<TokenId>* out) const;

  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_set<uint64_t> joins_;
  uint32_t next_rank_ = 0;
};

}  // namespace baton
