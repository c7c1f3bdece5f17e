#pragma once

#include <cstdio>
#include <string>

#include "tests/goodput/load/load.h"

namespace baton {

// Tells a person how far a load is: on a terminal one line that is written over each second, and
// else a line every five seconds. One thread.
class ProgressLine {
 public:
  // `out` outlives it.
  ProgressLine(FILE* out, std::string what);
  // Ends the line.
  ~ProgressLine();

  void Show(const RunProgress& progress);

  // "12 of 90 s, 20.1 requests/s, 3 open, attainment 97.1 % of 210, 78 s left".
  static std::string Text(const RunProgress& progress);

 private:
  FILE* const out_;
  const std::string what_;  // before each line; may be empty
  const bool terminal_;
  size_t width_ = 0;  // of the line that stands there
  int lines_ = 0;     // told, or passed over
};

}  // namespace baton
