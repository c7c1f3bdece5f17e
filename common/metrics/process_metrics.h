#pragma once

#include "absl/strings/string_view.h"
#include "common/metrics/metric_registry.h"

namespace baton {

// Adds the metrics that all our programs have: the version, and, under the names that Prometheus'
// own clients use, processor time, memory, open files and start time.
void AddProcessMetrics(absl::string_view program, MetricRegistry* registry);

}  // namespace baton
