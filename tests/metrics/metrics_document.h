#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

namespace baton {

// Name, type and label names of a metric.
using MetricRow = std::tuple<std::string, std::string, std::set<std::string>>;

// Returns the metrics in the tables of docs/metrics.md. The key is the heading above a table. Each
// row of a table is | `name` | type | `label`, ... | meaning |. A row that can't be parsed, or that
// occurs twice, fails the test.
std::map<std::string, std::set<MetricRow>> MetricsDocument();

}  // namespace baton
