#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/text_range.h"
#include "common/base/types.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

struct EncodeOptions {
  // If true, special tokens written in the text become their ids. If false, they stay ordinary
  // text, so that a user can't forge a control token by typing it. Added tokens that are not
  // special are found in either case.
  bool parse_special = false;
  // Puts BOS and EOS around the text as the tokeniser's template says.
  bool add_special = true;
  // Parts of the text in which special tokens become their ids even if `parse_special` is false.
  // They are in order and do not touch. A token must lie in one part as a whole. For a chat
  // template: its own text, but not the text of people between.
  absl::Span<const TextRange> special_ranges;
  // Encoding stops, with OutOfRange, when the text turns out to have more tokens than this.
  size_t max_tokens = std::numeric_limits<size_t>::max();
  // Called after every few thousand bytes. Encoding stops with the first status that is not OK. May
  // be empty.
  std::function<absl::Status()> interrupted;
  // If set, receives the number of bytes of the text that no token stands for (warnings()).
  size_t* dropped_bytes = nullptr;
};

// Converts text to token ids and back, as a Hugging Face tokenizer.json describes. The ids are
// exactly those of the `tokenizers` library (with `encode_special_tokens` if `parse_special` is
// false). Supports the BPE variants that README.md lists. Constant once loaded; any thread.
class Tokenizer {
 public:
  // Loads a tokenizer.json. Returns NotFound or Unavailable if the file can't be read. Returns
  // InvalidArgument for anything malformed or unsupported, with the file, the path in the JSON, the
  // value found and the values supported.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromFile(const std::string& path);
  // Does the same as FromFile with the contents of a file. `name` is used in messages.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromJson(absl::string_view json,
                                                                   absl::string_view name);

  // Converts text to ids. Returns InvalidArgument for text that is not UTF-8, with the offset of
  // the first wrong byte, and for text for which a regular expression of the tokeniser exceeds
  // its limits. Returns OutOfRange, or the status of `interrupted`, if the options stop it. For
  // empty text, returns only the tokens that the tokeniser's template adds.
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view utf8,
                                              EncodeOptions options = {}) const;

  // Returns the text that the decoder of tokenizer.json makes of `ids`. Unknown ids give no text.
  // If `skip_special` is true, special tokens give no text either.
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const;

  // Returns the bytes that a token adds to a text in which other tokens come before it. These bytes
  // often end within a character. Empty for an unknown id. The view is valid as long as the
  // tokeniser.
  absl::string_view TokenBytes(TokenId id) const;
  // Returns true if the token is a byte token such as <0x41> and the decoder reads it as a byte.
  bool IsByte(TokenId id) const { return IsToken(id) && byte_tokens_[id]; }

  // Returns the highest id plus one. A model's vocabulary may be padded beyond this size.
  TokenId vocab_size() const { return vocabulary_.size(); }
  bool IsToken(TokenId id) const { return vocabulary_.Contains(id); }
  bool IsSpecial(TokenId id) const { return IsToken(id) && special_[id]; }

  // TokenToId and TokenText convert between an id and its text as spelled in tokenizer.json. For
  // example, this file spells " the" as "Ġthe", and "<|im_end|>" as itself.
  std::optional<TokenId> TokenToId(absl::string_view text) const { return vocabulary_.Find(text); }
  absl::string_view TokenText(TokenId id) const { return vocabulary_.Text(id); }

  const Decoder& decoder() const { return *decoder_; }

  // Returns a sentence for the log about everything that is odd in tokenizer.json.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Tokenizer() = default;
  absl::Status ReadAddedTokens(const JsonNode& root, absl::string_view name);
  absl::Status SpellOutBytes();
  // Returns the parts of a normalised text in which special tokens may be found. The text was the
  // part `of_text` of the whole text, whose parts of this kind are `ranges`.
  absl::StatusOr<std::vector<TextRange>> NormalizedRanges(absl::string_view whole,
                                                          TextRange of_text,
                                                          absl::Span<const TextRange> ranges,
                                                          EncodeStop* stop) const;

  Vocabulary vocabulary_;
  std::vector<std::string> warnings_;
  std::vector<bool> special_;
  std::vector<bool> byte_tokens_;
  std::string bytes_;  // bytes of all tokens, one after the other
  // Token i has the bytes from byte_ends_[i] to byte_ends_[i + 1].
  std::vector<uint32_t> byte_ends_;
  AddedTokenMatcher raw_tokens_;
  AddedTokenMatcher normalized_tokens_;
  bool has_normalized_special_ = false;  // True if some of them are special.
  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<Bpe> model_;
  PostProcessor post_processor_;
  std::optional<Decoder> decoder_;
};

}  // namespace baton
