#pragma once

#include "common/metrics/metric_registry.h"
#include "router/router_server.h"

namespace baton {

// What a router shows of itself. `router` outlives the registry's last Text().
void AddRouterMetrics(const RouterServer* router, MetricRegistry* registry);

}  // namespace baton
