#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton {

// Range of the TCP ports (--kv-ports) at which this process may listen.
struct PortRange {
  int first = 0;
  int last = 0;

  // Parses "FIRST-LAST". Empty text means any port; `first` and `last` are then zero. Returns
  // InvalidArgument for other text, or for fewer than two ports.
  static absl::StatusOr<PortRange> Parse(const std::string& text);
  bool any() const { return last == 0; }
  // Returns the error for a worker that finds too few free ports in the range.
  absl::Status Taken() const;
};

}  // namespace baton
