#pragma once

#include "common/metrics/metric_registry.h"
#include "router/router_server.h"

namespace baton {

// Adds the router's metrics to the registry. `router` outlives the registry's last Text().
void AddRouterMetrics(const RouterServer* router, MetricRegistry* registry);

}  // namespace baton
