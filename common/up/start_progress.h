#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// A process that the start of a cluster still waits for, with its progress or the reason why it is
// not running.
struct Missing {
  std::string name;
  std::string why;  // may be empty
};

// Returns a line such as "waiting for decode-1: loading weights, 3.1 of 16.0 GB (3 s)". Beyond
// about 100 characters, text is cut and further processes are only counted: "... ; 2 more (3 s)".
std::string WaitingLine(const std::vector<Missing>& missing, absl::Duration waited);

// Decides when a slow start prints what it waits for: first after two seconds, then once per
// `pace`. Reads no clock.
class StartProgress {
 public:
  StartProgress(absl::Time begin, absl::Duration pace)
      : begin_(begin), pace_(pace), next_(begin + kSilence) {}

  // Returns the line to print now, or nothing if none is due.
  std::optional<std::string> Line(const std::vector<Missing>& missing, absl::Time now);
  // Time at which to call Line() next.
  absl::Time NextTime() const { return next_; }

 private:
  static constexpr absl::Duration kSilence = absl::Seconds(2);

  const absl::Time begin_;
  const absl::Duration pace_;
  absl::Time next_;
};

}  // namespace baton
