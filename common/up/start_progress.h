#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// A process that the start of a cluster still waits for, and how far it is, or why it is away.
struct Missing {
  std::string name;
  std::string why;  // may be empty
};

// "waiting for decode-1: loading weights, 3.1 of 16.0 GB (3 s)". What does not fit into about 100
// characters is cut or counted: "... ; 2 more (3 s)".
std::string WaitingLine(const std::vector<Missing>& missing, absl::Duration waited);

// Decides when a start that takes long says what it waits for: first after two seconds, then once
// per `pace`. Reads no clock.
class StartProgress {
 public:
  StartProgress(absl::Time begin, absl::Duration pace)
      : begin_(begin), pace_(pace), next_(begin + kSilence) {}

  // The line to show now, if one is due.
  std::optional<std::string> Line(const std::vector<Missing>& missing, absl::Time now);
  // When to ask next.
  absl::Time NextTime() const { return next_; }

 private:
  static constexpr absl::Duration kSilence = absl::Seconds(2);

  const absl::Time begin_;
  const absl::Duration pace_;
  absl::Time next_;
};

}  // namespace baton
