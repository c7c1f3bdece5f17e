#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Finds the first of several stop strings in a text that arrives in pieces. Holds back exactly the
// end of the text that may still turn out to begin a stop string. The result does not depend on how
// the text is cut into pieces: the match that ends first wins, and of several that end at the same
// byte, the longest. Uses the algorithm of Knuth, Morris and Pratt for each string, so the time is
// linear in the length of the text. Not thread-safe.
class StopMatcher {
 public:
  // No string in `stops` may be empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes more text, and appends the text that became certain to `certain`. Returns true once a
  // stop string has matched: that string and everything after it are dropped, and Feed() must not
  // be called again. With `may_match` false, stop strings that end in this text do not match; one
  // that only begins in it still can.
  bool Feed(absl::string_view text, std::string* certain, bool may_match = true);
  // Ends the text and returns the part that was held back, since no stop string can follow.
  std::string Flush();
  // The stop string that matched; empty before a match.
  const std::string& matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    // border[i] is the length of the longest proper prefix of text[0, i) that text[0, i) also ends
    // with.
    std::vector<size_t> border;
    size_t length = 0;  // Length of the longest prefix of `text` that ends the input so far.
  };
  std::vector<Stop> stops_;
  std::string held_;  // Text that is held back: the longest prefix of a stop string.
  std::string matched_;
};

}  // namespace baton
