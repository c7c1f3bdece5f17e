#pragma once

#include <cstdio>
#include <string>

#include "tests/goodput/load/load.h"

namespace baton {

// Shows the progress of a load. On a terminal it overwrites one line each second; elsewhere it
// prints a line every five seconds. One thread.
class ProgressLine {
 public:
  // `out` must outlive this object.
  ProgressLine(FILE* out, std::string what);
  // Ends the line with a newline if the output is a terminal.
  ~ProgressLine();

  void Show(const RunProgress& progress);

  // Returns, for example, "12 of 90 s, 20.1 requests/s, 3 open, attainment 97.1 % of 210, 78 s
  // left".
  static std::string Text(const RunProgress& progress);

 private:
  FILE* const out_;
  const std::string what_;  // Text before the progress; may be empty.
  const bool terminal_;
  size_t width_ = 0;  // Width of the line on the terminal.
  int lines_ = 0;     // Number of calls of Show() while the output was no terminal.
};

}  // namespace baton
