#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "baton/v1/token.pb.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Returns the number of characters (code points) of a UTF-8 text.
size_t CountCharacters(absl::string_view utf8);

// Returns the text of a token in lists of logprobs: its bytes, or, if they are only part of a
// character, "bytes:\xe2\x98" as OpenAI writes them, where letters of ASCII stay letters.
std::string TokenLabel(const Tokenizer& tokenizer, TokenId id);

// The object `logprobs` of an answer. Its lists are formatted token by token, because as JSON they
// take less memory than as messages. The answers of a chat have one list, `content`; those of
// /v1/completions have five other lists. An object is used for one of the two alone.
class LogprobLists {
 public:
  // Adds a token. `offset` is the number of characters before its text. `alternatives` is the max
  // number of other tokens in `top_logprobs`; the token itself comes first there, and then the most
  // likely ones, without it. A token without logprob has null in both lists.
  void Add(const v1::Token& token, size_t offset, int alternatives, const Tokenizer& tokenizer);
  // Adds a token to `content`. Its `top_logprobs` are the `alternatives` most likely tokens, the
  // most likely one first. The token itself is among them only if it is one of these.
  void AddToContent(const v1::Token& token, int alternatives, const Tokenizer& tokenizer);
  void Clear();
  // Appends the object, with the tokens of `before` (which may be null) in front of these.
  void AppendTo(const LogprobLists* before, std::string* out) const;
  // Appends the object of a chat.
  void AppendContentTo(std::string* out) const;
  // Memory held.
  size_t bytes() const;

 private:
  // The elements of the lists, with commas between them.
  std::string text_offset_, token_logprobs_, tokens_, top_logprobs_, bytes_, content_;
};

// Appends one element of vLLM's list `prompt_logprobs`: null, or an object from token ids to
// {"logprob","rank","decoded_token"}. The rank of a token that is not among the `alternatives` most
// likely ones is null, because it is not known.
void AppendPromptLogprob(const v1::Token& token, int alternatives, const Tokenizer& tokenizer,
                         std::string* out);

// Finds the part of a prompt's text that belongs to each of its tokens.
class PromptWalk {
 public:
  explicit PromptWalk(absl::string_view text) : text_(text) {}
  // Takes the next token. Returns its part of the text, which may be empty: a token that the
  // tokeniser adds, such as BOS, has none.
  absl::string_view Next(const Tokenizer& tokenizer, TokenId id);
  // Returns the part of the text behind all tokens so far.
  absl::string_view rest() const { return text_.substr(at_); }

 private:
  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace baton
