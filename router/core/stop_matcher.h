#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Finds the first of several stop strings in a text that arrives in pieces. Holds back exactly the
// end of the text that may still turn out to begin a stop string. The result does not depend on how
// the text is cut into pieces: the match is the one whose last byte comes first, and the longest of
// those that end there. Uses the algorithm of Knuth, Morris and Pratt for each string: linear in
// the text. Not thread-safe.
class StopMatcher {
 public:
  // No string in `stops` may be empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes more text, and appends the text that became certain to `certain`. Returns true once a
  // stop string has matched: that string and everything after it are dropped, and Feed() must not
  // be called again.
  bool Feed(absl::string_view text, std::string* certain);
  // Ends the text and returns the part that was held back, which is certain now.
  std::string Flush();
  // The string that matched; empty before.
  const std::string& matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [i]: longest proper prefix of text[0, i) that also ends it.
    size_t length = 0;           // Length of its prefix that the text so far ends with.
  };
  std::vector<Stop> stops_;
  std::string held_;  // Text that is held back: the longest prefix of a stop string.
  std::string matched_;
};

}  // namespace baton
