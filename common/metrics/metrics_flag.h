#pragma once

#include <memory>

#include "common/metrics/metric_registry.h"
#include "common/metrics/metrics_server.h"

namespace baton {

// Functions for --metrics-listen, a flag of every serving program. Call them only from `main`.

// Binds the address of --metrics-listen. Call it before any slow part of the start. Returns null if
// the flag is empty, which is the default. An address that can't be used ends the program with a
// message (RefuseToStart).
std::unique_ptr<MetricsServer> ListenForMetrics();
// Serves `registry`, which must outlive the server. Prints the address to standard output ("metrics
// on HOST:PORT", PrintAtStart) and logs it. Does nothing if `server` is null.
void ServeMetrics(MetricsServer* server, const MetricRegistry* registry);

}  // namespace baton
