#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Finds the first of several stop strings in a text that arrives in pieces, and holds back exactly
// what may still turn out to begin one. How the text is cut into pieces changes nothing: the match
// is the one whose last byte comes first, and among those that end there the longest. Knuth, Morris
// and Pratt per string: linear in the text.
class StopMatcher {
 public:
  // `stops`: none empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes more text; appends what became certain to `certain`. True once a stop string has matched:
  // it and everything after it are dropped, and nothing more may be fed.
  bool Feed(absl::string_view text, std::string* certain);
  // The text is over: what was held back is certain after all.
  std::string Flush();
  // The string that matched; empty before.
  const std::string& matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [i]: longest proper prefix of text[0, i) that also ends it
    size_t length = 0;           // of its prefix that the text so far ends with
  };
  std::vector<Stop> stops_;
  std::string held_;  // the longest such prefix: not yet given out
  std::string matched_;
};

}  // namespace baton
