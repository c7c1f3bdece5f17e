#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/bpe_merges.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// Byte-pair encoding (Sennrich et al., ACL 2016): the "model" of a tokenizer.json, type BPE. Splits
// a word into characters or bytes, as WordSpelling says, and replaces each by its token. A
// character without a token becomes its byte tokens (`byte_fallback`) or the unknown token, or is
// dropped where the model has neither. Then merges the tokens. Constant once built; any thread.
class Bpe {
 public:
  // Reads the model and adds its tokens to `vocabulary`. Returns InvalidArgument for anything
  // malformed or unsupported, for example a merge of tokens that do not exist.
  static absl::StatusOr<Bpe> FromJson(const JsonNode& model, WordSpelling spelling,
                                      Vocabulary* vocabulary);

  // Buffers of Encode. Keep them between calls to save allocations.
  struct Scratch {
    std::vector<TokenId> symbols;
    std::vector<uint32_t> begins;  // index in the word where each symbol begins
    BpeMerges::Scratch merging;
    size_t dropped_bytes = 0;  // sum over the words: bytes of text that no token stands for
  };

  // Says for people which text is dropped for lack of a token; empty if none is.
  const std::string& drops() const { return drops_; }

  // Appends the tokens of one word that the pre-tokeniser has cut. The word may have at most 1 GiB.
  // Takes O(n log n) time for any word of n bytes. `out` holds the tokens of the text before the
  // word. Returns InvalidArgument if more than kMaxRun symbols in a row may merge with each other,
  // because merging them takes 50 bytes of memory for each. Returns the status of `stop`. If the
  // result is not OK, `out` may have only some of the word's tokens, or more tokens than `stop`
  // allows.
  static constexpr size_t kMaxRun = 1 << 20;
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
  // Sets drops_. Returns InvalidArgument if unknown characters need a token that does not exist.
  absl::Status FindDrops(const JsonNode& model, WordSpelling spelling,
                         const Vocabulary& vocabulary);
  std::vector<TokenId> Symbols() const;
  void FindKnownWords(const Vocabulary& vocabulary, bool ignore_merges);

  // A place in a word up to which it has been split into symbols.
  struct Position {
    size_t at = 0;                // index in the word
    bool unknown_before = false;  // an unknown token is still to be added
    // False if the index in the word where a symbol begins may be wrong, because an unknown token
    // was found or a character was dropped. An unknown token may stand for several characters, and
    // may be added after symbols of later characters.
    bool in_place = true;
  };
  // Splits more of the word into its initial symbols: adds them to `scratch->symbols`, and to
  // `scratch->begins` the index in the word where each one begins. Stops at the end of the word, or
  // when the scratch has `enough` symbols. Returns true if all of the word has been split.
  bool TakeApart(absl::string_view word, size_t enough, Position* position, Scratch* scratch) const;
  // Appends the tokens of a part of a word that no merge crosses the borders of. `text` is the part
  // if it may be looked up among the known words, and empty otherwise.
  absl::Status MergePart(absl::Span<const TokenId> part, absl::string_view text, EncodeStop* stop,
                         Scratch* scratch, std::vector<TokenId>* out) const;
  // Returns OutOfRange if this number of symbols, which may merge with each other, must become more
  // tokens than the text may have. Returns InvalidArgument if it is more than kMaxRun.
  absl::Status CheckSymbols(size_t symbols, const EncodeStop& stop,
                            const std::vector<TokenId>& out) const;
  absl::Status Merge(absl::string_view word, EncodeStop* stop, Scratch* scratch,
                     std::vector<TokenId>* out) const;

  BpeMerges merges_;
  bool bytes_ = false;      // words are split into bytes
  bool spell_out_ = false;  // words hold bytes, but are split into characters of the byte alphabet
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  TokenId unknown_ = -1;
  std::string drops_;
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
