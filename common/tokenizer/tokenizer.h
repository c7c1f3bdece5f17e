#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

struct EncodeOptions {
  // Special tokens written in the text become their ids. Otherwise they are ordinary text, so that
  // what a user types cannot forge a control token. Added tokens that are not special are found
  // either way.
  bool parse_special = false;
  // Puts BOS and EOS around the text where the tokeniser's template says so.
  bool add_special = true;
};

// Text to token ids and back, as a Hugging Face tokenizer.json describes it, id for id what the
// `tokenizers` library gives (with `encode_special_tokens` where `parse_special` is false).
// BPE of all spellings; README.md lists what is supported. Constant once loaded; any thread.
class Tokenizer {
 public:
  // Loads a tokenizer.json. NotFound or Unavailable where it cannot be read. InvalidArgument, with
  // file, place in the JSON, what stands there and what is supported, for everything that is
  // malformed or unsupported.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromFile(const std::string& path);
  // The same from memory; `name` stands in messages.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromJson(absl::string_view json,
                                                                   absl::string_view name);

  // InvalidArgument for text that is not UTF-8, with the offset of the first wrong byte, and for a
  // text that exceeds the limits of a pattern. Empty text gives what the template adds, if
  // anything.
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view utf8,
                                              EncodeOptions options = {}) const;

  // The text of `ids` as the file's decoder makes it. Ids that are no token give nothing. With
  // `skip_special`, special tokens give nothing.
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const;

  // What a token adds to a text that has begun before it; often not a whole number of characters.
  // Empty for an id that is no token. The view lives as long as the tokeniser.
  absl::string_view TokenBytes(TokenId id) const;
  // Whether it is a byte token such as <0x41>, and the decoder reads it so.
  bool IsByte(TokenId id) const { return IsToken(id) && byte_tokens_[id]; }

  // One past the highest id; a model's vocabulary may be padded beyond it.
  TokenId vocab_size() const { return vocabulary_.size(); }
  bool IsToken(TokenId id) const { return vocabulary_.Contains(id); }
  bool IsSpecial(TokenId id) const { return IsToken(id) && special_[id]; }

  // Between an id and its text as the file spells it: "Ġthe" for " the", "<|im_end|>" for itself.
  std::optional<TokenId> TokenToId(absl::string_view text) const { return vocabulary_.Find(text); }
  absl::string_view TokenText(TokenId id) const { return vocabulary_.Text(id); }

  const Decoder& decoder() const { return *decoder_; }

 private:
  Tokenizer() = default;
  absl::Status ReadAddedTokens(const JsonNode& root);
  absl::Status SpellOutBytes();

  Vocabulary vocabulary_;
  std::vector<bool> special_;
  std::vector<bool> byte_tokens_;
  std::string bytes_;                // of all tokens, one after the other
  std::vector<uint32_t> byte_ends_;  // token i: from byte_ends_[i] to byte_ends_[i + 1]
  AddedTokenMatcher raw_tokens_;
  AddedTokenMatcher normalized_tokens_;
  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<Bpe> model_;
  PostProcessor post_processor_;
  std::optional<Decoder> decoder_;
};

}  // namespace baton
