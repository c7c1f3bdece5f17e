#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

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
    std::vector<TokenId> word;
    std::vector<Symbol> symbols;
    std::vector<std::pair<uint64_t, TokenId>> heap;
  };

  // Merges `scratch->word` until no pair has a rank, always the lowest rank and of these the
  // leftmost, and appends what is left. O(n log n) for a word of n symbols.
  void Apply(Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };
  const Merge* Find(TokenId left, TokenId right) const;
  void ApplyShort(std::vector<TokenId>* word) const;
  void ApplyLong(Scratch* scratch, std::vector<TokenId>* out) const;

  absl::flat_hash_map<uint64_t, Merge> merges_;
  uint32_t next_rank_ = 0;
};

// Byte-level BPE: "model" of a tokenizer.json, type BPE, over the alphabet of byte_alphabet.h.
// Constant once built; any thread.
class ByteBpe {
 public:
  // Adds the model's tokens to `vocabulary`. InvalidArgument for anything malformed or unsupported,
  // among it a merge of tokens that are missing, and a vocabulary that lacks a byte which UTF-8 can
  // contain.
  static absl::StatusOr<ByteBpe> FromJson(const JsonNode& model, Vocabulary* vocabulary);

  // Appends the tokens of one word, as the pre-tokeniser cut it.
  void Encode(absl::string_view word, BpeMerges::Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  BpeMerges merges_;
  std::array<TokenId, 256> byte_ids_{};
  // Words that are a token as they stand: all tokens with `ignore_merges`, otherwise those that
  // merging their bytes leads to, so that a common word costs one look-up.
  absl::flat_hash_map<std::string, TokenId> words_;
};

}  // namespace baton
