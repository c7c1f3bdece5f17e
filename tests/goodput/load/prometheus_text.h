#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the gauges of one page in Prometheus' text format whose names begin with `prefix`, in the
// page's order. Each pair holds a name with its labels, and the value. Other metrics, comments and
// malformed lines are skipped, because a bad page must not stop a load.
std::vector<std::pair<std::string, double>> GaugesIn(absl::string_view text,
                                                     absl::string_view prefix);

}  // namespace baton
