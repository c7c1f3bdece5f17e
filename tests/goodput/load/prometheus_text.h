#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// The gauges of one scrape in Prometheus' text format whose names begin with `prefix`, as (name
// with labels, value), in order. Other kinds, comments and lines that are no samples are passed
// over: the scrape is a companion of a load, not its subject.
std::vector<std::pair<std::string, double>> GaugesIn(absl::string_view text,
                                                     absl::string_view prefix);

}  // namespace baton
