#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Turns the ids of one answer into text as they arrive. The results of all calls together equal
// Tokenizer::Decode of all ids. One owner at a time; the tokeniser must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special);

  // Adds an id. Returns the text that later ids can no longer change, in whole characters. Other
  // text waits: up to three bytes that may begin a character, with byte_fallback the whole run of
  // byte tokens (one wrong byte turns all of it into U+FFFD), and text that a decoder step may
  // strip from the end.
  std::string Push(TokenId id);

  // Returns the text that still waits. The decoder can then be used for another answer.
  std::string Finish();

  // True if text waits.
  bool pending() const;

 private:
  // State of one step of Decoder::whole() over the joined text.
  struct Edge {
    size_t start_left;  // marks that may still be stripped from the start
    size_t held = 0;    // marks at the end so far; they may be stripped
  };

  void Reset();
  void FlushRun(std::string* out);
  // Passes a token that comes out of ByteFallback through the remaining steps.
  void PushToken(absl::string_view token, std::string* out);
  void Join(absl::string_view bytes, std::string* out);
  void PushJoined(std::string text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_before_ = true;  // no token has come yet
  bool first_behind_ = true;  // no token has come out of ByteFallback yet
  std::string run_;           // bytes of the current run of byte tokens
  std::string pending_;       // the beginning of a character
  std::vector<Edge> edges_;
};

}  // namespace baton
