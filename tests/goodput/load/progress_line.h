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
  // Ends the line on a terminal.
  ~ProgressLine();

  void Show(const RunProgress& progress);

  // Returns, for example, "12 of 90 s, 20.1 requests/s, 3 open, attainment 97.1 % of 210, 78 s
  // left".
  static std::string Text(const RunProgress& progress);

 private:
  FILE* const out_;
  const std::string what_;  // Printed before each line; may be empty.
  const bool terminal_;
  size_t width_ = 0;  // Width of the line on the terminal.
  int lines_ = 0;     // Calls of Show() without a terminal.
};

}  // namespace baton
