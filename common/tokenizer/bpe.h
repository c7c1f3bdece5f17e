#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/tokenizer/bpe_merges.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// Byte-pair encoding (Sennrich et al., ACL 2016): the "model" of a tokenizer.json, type BPE. Splits
// a word into characters or bytes, as WordSpelling says, and replaces each by its token. A
// character without a token becomes its byte tokens (`byte_fallback`) or the unknown token. Then
// merges the tokens. Constant once built; any thread.
class Bpe {
 public:
  // Reads the model and adds its tokens to `vocabulary`. Returns InvalidArgument for anything
  // malformed or unsupported, for example a merge of tokens that do not exist, or a vocabulary that
  // leaves characters without any token.
  static absl::StatusOr<Bpe> FromJson(const JsonNode& model, WordSpelling spelling,
                                      Vocabulary* vocabulary);

  // Buffers of Encode. Keep them between calls to save allocations.
  struct Scratch {
    std::vector<TokenId> symbols;
    std::vector<uint32_t> begins;  // index in the word where each symbol begins
    BpeMerges::Scratch merging;
  };

  // Appends the tokens of one word that the pre-tokeniser has cut. The word may have at most 1 GiB.
  // Takes O(n log n) time for any word of n bytes. `out` holds the tokens of the text before the
  // word. Returns the status of `stop`; if it is not OK, `out` may have only some of the word's
  // tokens, or more tokens than `stop` allows.
  absl::Status Encode(absl::string_view word, EncodeStop* stop, Scratch* scratch,
                      std::vector<TokenId>* out) const;

 private:
  struct Known {
    TokenId id;
    // True if merging the word's symbols gives this token. If false, the word becomes this token
    // only because of `ignore_merges`.
    bool merged;
  };

  void ReadSymbols(const Vocabulary& vocabulary);
  absl::Status CheckNothingIsLost(const JsonNode& model, WordSpelling spelling,
                                  const Vocabulary& vocabulary) const;
  std::vector<TokenId> Symbols() const;
  void FindKnownWords(const Vocabulary& vocabulary, bool ignore_merges);

  // Splits the word into its initial symbols: fills `scratch->symbols`, and `scratch->begins` with
  // the index in the word where each symbol begins. May leave out the rest of the word when there
  // are `enough` symbols. Returns false if the indices may be wrong, because the word has an
  // unknown token. Such a token may stand for several characters, and may be added after symbols of
  // later characters.
  bool TakeApart(absl::string_view word, size_t enough, Scratch* scratch) const;
  absl::Status Merge(absl::string_view word, EncodeStop* stop, Scratch* scratch,
                     std::vector<TokenId>* out) const;

  BpeMerges merges_;
  bool bytes_ = false;      // words are split into bytes
  bool spell_out_ = false;  // words hold bytes, but are split into characters of the byte alphabet
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  TokenId unknown_ = -1;
  // Token of each byte, or -1 for none. If `bytes_` is true, this is the token of the byte's
  // character in the byte alphabet. Otherwise it is the token that byte fallback uses, such as
  // <0x0A>.
  std::array<TokenId, 256> byte_ids_{};
  std::array<TokenId, 128> ascii_ids_{};
  absl::flat_hash_map<char32_t, TokenId> char_ids_;
  // Words that are a single token. With this map, a common word costs only one look-up.
  absl::flat_hash_map<std::string, Known> words_;
  size_t longest_word_ = 0;
  size_t max_symbols_ = 1;  // max number of symbols that merging can make one token of
};

}  // namespace baton
