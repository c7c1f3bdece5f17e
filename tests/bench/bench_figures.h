#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Prints the results of a benchmark: a line per figure for a reader and, if wanted, a line of JSON.
// Each line is flushed, so that a run that is cut short keeps its results.
class BenchFigures {
 public:
  struct Figure {
    std::string name;
    std::string unit;
    double median = 0, min = 0, max = 0;
    // This figure divided by the figure or fixed limit that `of` names; higher is better. 0: this
    // figure is a yardstick, with which other figures of the run are compared.
    double ratio = 0;
    std::string of;
    // A figure whose ratio is below `target` has missed its target; 0: no target. `good` is a
    // higher ratio that is only printed beside the target.
    double target = 0, good = 0;
  };

  // `json` is a file to append to, or empty. `means_nothing` is true if there is no real device:
  // then the output says that the figures mean nothing, and no figure misses its target.
  BenchFigures(const std::string& json, bool means_nothing)
      : json_(json), means_nothing_(means_nothing) {}

  // Prints the figure, and appends it to the file `json`, if there is one. Ends the program if the
  // file can't be written.
  void Add(const Figure& figure);
  // Prints that `name` was not measured, and why. Ends the program if the file can't be written.
  void Skip(const std::string& name, absl::string_view why);
  // Returns the names of figures whose ratio was below their target.
  const std::vector<std::string>& missed() const { return missed_; }
  // Returns the number of figures.
  int count() const { return count_; }

 private:
  const std::string json_;
  const bool means_nothing_;
  int count_ = 0;
  std::vector<std::string> missed_;
};

}  // namespace baton
