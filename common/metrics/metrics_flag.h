#pragma once

#include <memory>

#include "common/metrics/metric_registry.h"
#include "common/metrics/metrics_server.h"

namespace baton {

// --metrics-listen, which every serving program has. `main` only.

// Takes the address before anything that takes long; null when the flag is empty, as it is by
// default. An address that can't be used ends the program with a message (RefuseToStart).
std::unique_ptr<MetricsServer> ListenForMetrics();
// Shows `registry` there, which outlives the server, and says where on standard output ("metrics on
// HOST:PORT", PrintAtStart) and in the log. Nothing when `server` is null.
void ServeMetrics(MetricsServer* server, const MetricRegistry* registry);

}  // namespace baton
