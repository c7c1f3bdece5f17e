#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Turns the ids of one answer into text as they arrive. The results of all calls, put together,
// equal Tokenizer::Decode of all ids. Used by one thread at a time. The tokeniser must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special);

  // Adds an id. Returns the text that later ids can no longer change, in whole characters. Other
  // text waits until it is certain:
  // - up to three bytes that may begin a character;
  // - with byte_fallback, the current run of byte tokens, because one wrong byte turns all of it
  //   into U+FFFD;
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
  void FlushRun(std::string* out);
  // Passes a token that comes out of ByteFallback through the remaining decoder steps.
  void PushToken(absl::string_view token, std::string* out);
  void Join(absl::string_view bytes, std::string* out);
  void PushJoined(std::string text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_before_ = true;  // no token has come yet
  bool first_behind_ = true;  // no token has come out of ByteFallback yet
  std::string run_;           // bytes of the current run of byte tokens
  std::string pending_;       // bytes at the end that may begin a character
  std::vector<Edge> edges_;
};

}  // namespace baton
