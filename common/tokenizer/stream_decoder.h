#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Turns one answer's ids into text as they come. What all calls give, one after the other, is
// Tokenizer::Decode of all ids. One owner at a time; the tokeniser outlives it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special);

  // The text that has become certain: whole characters only. What a later id can still change
  // waits: up to three bytes that may begin a character, with byte_fallback the whole run of byte
  // tokens (one wrong byte makes all of it U+FFFD), and what a decoder may strip from the end.
  std::string Push(TokenId id);

  // What still waits. The decoder is as new then.
  std::string Finish();

  // Whether anything waits.
  bool pending() const;

 private:
  // One of Decoder::whole() over the joined text.
  struct Edge {
    size_t start_left;  // how many marks may still be stripped from the start
    size_t held = 0;    // marks at the end so far, which may be stripped
  };

  void Reset();
  void FlushRun(std::string* out);
  // A token as it comes out of ByteFallback, and what that has become.
  void PushToken(absl::string_view token, std::string* out);
  void Join(absl::string_view bytes, std::string* out);
  void PushJoined(std::string text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_before_ = true;  // no token has come yet
  bool first_behind_ = true;  // none has come out of ByteFallback
  std::string run_;           // bytes of byte tokens
  std::string pending_;       // the beginning of a character
  std::vector<Edge> edges_;
};

}  // namespace baton
