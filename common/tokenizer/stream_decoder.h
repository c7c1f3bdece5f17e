#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Turns ids into text as they arrive. Used by one thread at a time. The tokeniser must outlive it.
class StreamDecoder {
 public:
  // Decodes a text of its own. The results of all calls, put together, equal Tokenizer::Decode of
  // all ids.
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special);
  // Decodes the answer to a prompt, by default without special tokens. The results of all calls,
  // put together, are what decode(prompt + answer) adds to decode(prompt), where each run of byte
  // tokens is valid UTF-8 and the prompt ends on a whole character. Elsewhere, each maximal part
  // that is not valid UTF-8 gives one U+FFFD, because decode() would change characters that were
  // returned already.
  static StreamDecoder ForAnswer(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                                 bool skip_special = true);

  // Adds an id. Returns the text that later ids can no longer change, in whole characters. Other
  // text waits until it is certain:
  // - up to three bytes that may begin a character;
  // - in a text of its own, with byte_fallback, the current run of byte tokens, because one wrong
  //   byte turns all of it into U+FFFD;
  // - text that a decoder step may strip from the end.
  std::string Push(TokenId id);

  // Returns the text that is still waiting. The decoder can then be used for another answer.
  std::string Finish();

  // Returns true if there is text that no Push has returned yet.
  bool pending() const;

 private:
  // State of one decoder step that strips characters from both ends of the joined text. The steps
  // are those of Decoder::whole().
  struct Edge {
    size_t start_left;  // number of characters that may still be stripped from the start
    size_t held = 0;    // number of characters at the current end that may be stripped
  };

  void Reset();
  // Returns true if text that came before can't affect how later ids are decoded.
  bool BeginIsBehind() const;
  // If `eager_` is set, takes the whole characters out of the run and decodes them.
  void ReleaseRun(std::string* out);
  void FlushRun(std::string* out);
  // Passes a token that comes out of ByteFallback through the remaining decoder steps.
  void PushToken(absl::string_view token, std::string* out);
  void Join(absl::string_view bytes, std::string* out);
  void PushJoined(std::string text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool eager_ = false;  // whole characters of byte tokens do not wait for the end of their run
  bool first_before_ = true;  // no token has come yet
  bool first_behind_ = true;  // no token has come out of ByteFallback yet
  std::string run_;           // bytes of the current run of byte tokens
  std::string pending_;       // bytes at the end that may begin a character
  std::vector<Edge> edges_;
};

}  // namespace baton
