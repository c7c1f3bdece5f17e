#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// What the start of a cluster still waits for: a process and what it said last, or why it is away.
struct Missing {
  std::string name;
  std::string why;
};

// "waiting for decode-1 (3 s): loading weights, 3.1 of 16.0 GB". With several names, each reason
// has its name before it.
std::string WaitingLine(const std::vector<Missing>& missing, absl::Duration waited);

// Decides when a start that takes long says what it waits for: first after two seconds, then each
// second in which something has changed, and every two seconds in which nothing has. Reads no
// clock.
class StartProgress {
 public:
  explicit StartProgress(absl::Time begin) : begin_(begin), next_(begin + kSilence) {}

  // The line to show now, if one is due.
  std::optional<std::string> Line(const std::vector<Missing>& missing, absl::Time now);
  // When to ask next.
  absl::Time NextTime() const { return next_; }

 private:
  static constexpr absl::Duration kSilence = absl::Seconds(2);
  static constexpr absl::Duration kPace = absl::Seconds(1);

  const absl::Time begin_;
  absl::Time next_, shown_at_ = absl::InfinitePast();
  std::string shown_;  // without the time
};

}  // namespace baton
