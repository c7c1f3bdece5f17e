#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/block_name.h"
#include "common/base/types.h"

namespace baton {

// Everything besides the tokens that decides the bytes of a sequence's KV, or who may share it. Two
// sequences share blocks only if all fields are equal.
struct PrefixScope {
  std::string secret;              // shared by the workers of one cluster; empty: none
  std::string model_fingerprint;   // hash of weights and configuration
  std::string numerics_id;         // backend, instruction path, summation order and KV type
  std::string layout_fingerprint;  // KvLayout::Fingerprint
  std::string adapter;             // adapter that changes the weights; empty: none
  int rope_reach = 0;              // names the rotary table (RopeReach in rope_config.h)
  std::string salt;                // chosen by the caller; empty: shares with all without a salt
};

// Names full blocks of KV by a SHA-256 chain. The root of the chain is a hash of the scope. A
// block's name is a hash of two things: its own token ids, and the name of its parent. The parent
// is the block before it or, for the first block, the root. So a name stands for the whole prefix
// up to the end of its block. The first 128 bits of each hash are kept,
// which is enough: to find two prefixes with one name takes about 2^64 hashes (FIPS 180-4).
//
// One thread at a time. A namer keeps only scratch memory, so any namer gives the same names.
class BlockNamer {
 public:
  // Returns the root of all chains of this scope. Each field is hashed with its own tag and length,
  // so no two scopes give the same input.
  BlockName Root(const PrefixScope& scope);
  // Returns the name of the block that holds `tokens` and follows the block `parent`, or is the
  // first block if `parent` is a root.
  BlockName Next(const BlockName& parent, absl::Span<const TokenId> tokens);

 private:
  std::string scratch_;
};

// The names of the leading full blocks of one sequence, in order. Empty by default: a sequence with
// an empty chain takes no hits, and its blocks get no names.
class PrefixChain {
 public:
  PrefixChain() = default;
  // Begins a chain for a sequence whose blocks hold `block_tokens` tokens each.
  PrefixChain(const BlockName& root, int block_tokens) : root_(root), block_tokens_(block_tokens) {}

  // Names each full block of `tokens` that has no name yet. `tokens` are all tokens of the
  // sequence; those of named blocks must not have changed.
  void Extend(absl::Span<const TokenId> tokens, BlockNamer* namer);

  bool empty() const { return block_tokens_ == 0; }
  const BlockName& root() const { return root_; }
  const std::vector<BlockName>& names() const& { return names_; }
  std::vector<BlockName> names() && { return std::move(names_); }
  // Returns the parent of block `index`: the name of the block before it, or the root.
  const BlockName& ParentOf(size_t index) const { return index == 0 ? root_ : names_[index - 1]; }

 private:
  BlockName root_;
  int block_tokens_ = 0;
  std::vector<BlockName> names_;
};

}  // namespace baton
