#pragma once

#include "absl/strings/string_view.h"
#include "common/metrics/metric_registry.h"

namespace baton {

// What every program of ours shows: its version, and under the names that Prometheus' own clients
// use, processor time, memory, open files and start of the process.
void AddProcessMetrics(absl::string_view program, MetricRegistry* registry);

}  // namespace baton
