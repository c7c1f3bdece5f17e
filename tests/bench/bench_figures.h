#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// What a benchmark found: a line for a reader and, where wanted, one of JSON, both flushed, so that
// a run cut short still tells.
class BenchFigures {
 public:
  struct Figure {
    std::string name;
    std::string unit;
    double median = 0, least = 0, most = 0;
    // As a share of a yardstick of the same run, or of a fixed limit; 0: it is a yardstick itself.
    double ratio = 0;
    std::string of;
    // Of the ratio; 0: there is none. A figure below `target` is missed. `good` is only printed.
    double target = 0, good = 0;
  };

  // `json`: a file to append to, or empty. `means_nothing`: figures of a device that is none, which
  // say so and miss no target.
  BenchFigures(const std::string& json, bool means_nothing)
      : json_(json), means_nothing_(means_nothing) {}

  // Dies when the file can't be written.
  void Add(const Figure& figure);
  // Says that `name` was not measured, and why. Dies when the file can't be written.
  void Skip(const std::string& name, absl::string_view why);
  // The names of those whose ratio was below their target.
  const std::vector<std::string>& missed() const { return missed_; }
  // How many figures there were.
  int count() const { return count_; }

 private:
  const std::string json_;
  const bool means_nothing_;
  int count_ = 0;
  std::vector<std::string> missed_;
};

}  // namespace baton
