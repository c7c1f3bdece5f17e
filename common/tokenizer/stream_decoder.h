#pragma once

#include <string>

#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Turns one answer's ids into text as they come. What all calls give, one after the other, is
// Tokenizer::Decode of all ids. One owner at a time; the tokeniser outlives it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that has become certain: whole characters only. Up to three bytes that may begin a
  // character wait for the next id.
  std::string Push(TokenId id);

  // What still waits, as U+FFFD. The decoder is as new then.
  std::string Finish();

  // Whether bytes wait.
  bool pending() const { return !pending_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace baton
