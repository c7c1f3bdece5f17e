#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton {

// The TCP ports of --kv-ports, at which this process may listen.
struct PortRange {
  int first = 0;
  int last = 0;

  // InvalidArgument for what is no range of two ports or more. Empty text: any port, both zero.
  static absl::StatusOr<PortRange> Parse(const std::string& text);
  bool any() const { return last == 0; }
  // The failure of a worker that finds too few of them free.
  absl::Status Taken() const;
};

}  // namespace baton
