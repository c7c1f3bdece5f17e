#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/tokenizer/bpe_merges.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// Byte-pair encoding (Sennrich et al., ACL 2016): "model" of a tokenizer.json, type BPE. Words fall
// into characters, or into bytes where they are spelled so; those into tokens, in whose place a
// character that is none gives its bytes (`byte_fallback`) or the unknown token; and these are
// merged. Constant once built; any thread.
class Bpe {
 public:
  // Adds the model's tokens to `vocabulary`. InvalidArgument for anything malformed or unsupported,
  // among it a merge of tokens that are missing, and a vocabulary that leaves characters without
  // any token.
  static absl::StatusOr<Bpe> FromJson(const JsonNode& model, WordSpelling spelling,
                                      Vocabulary* vocabulary);

  // Buffers of Encode, kept between calls by whoever calls it often.
  struct Scratch {
    std::vector<TokenId> symbols;
    std::vector<uint32_t> begins;  // where in the word each symbol begins
    BpeMerges::Scratch merging;
  };

  // Appends the tokens of one word, as the pre-tokeniser cut it; at most 1 GiB. O(n log n) for any
  // word.
  void Encode(absl::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  struct Known {
    TokenId id;
    bool merged;  // merging leads to it; otherwise only `ignore_merges` does
  };

  void ReadSymbols(const Vocabulary& vocabulary);
  absl::Status CheckNothingIsLost(const JsonNode& model, WordSpelling spelling,
                                  const Vocabulary& vocabulary) const;
  std::vector<TokenId> Symbols() const;
  void FindKnownWords(const Vocabulary& vocabulary, bool ignore_merges);

  // Fills `scratch->symbols` and `begins`. False where a symbol may not stand for the text at its
  // place: the unknown token can stand for more of it, and elsewhere.
  bool TakeApart(absl::string_view word, Scratch* scratch) const;
  void Merge(absl::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;

  BpeMerges merges_;
  bool bytes_ = false;      // words are taken apart into bytes
  bool spell_out_ = false;  // words hold bytes, but are taken apart into the alphabet's characters
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  TokenId unknown_ = -1;
  // The tokens of bytes: of their characters where `bytes_`, otherwise those of `byte_fallback`.
  // -1: none.
  std::array<TokenId, 256> byte_ids_{};
  std::array<TokenId, 128> ascii_ids_{};
  absl::flat_hash_map<char32_t, TokenId> char_ids_;
  // Words that are a token as they stand, so that a common word costs one look-up.
  absl::flat_hash_map<std::string, Known> words_;
  size_t longest_word_ = 0;
};

}  // namespace baton
