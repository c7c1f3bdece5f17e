#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

namespace baton {

// The name, the type and the label names of a metric.
using MetricRow = std::tuple<std::string, std::string, std::set<std::string>>;

// Returns what the tables of docs/metrics.md list, by the heading that a table stands under. Their
// rows are | `name` | type | `label`, ... | meaning |. A row that can't be read, or that is there
// twice, fails the test.
std::map<std::string, std::set<MetricRow>> MetricsDocument();

}  // namespace baton
