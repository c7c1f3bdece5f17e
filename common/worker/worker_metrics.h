#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/v1/membership.pb.h"
#include "common/metrics/metric_registry.h"
#include "common/worker/worker_core.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// Returns "baton_prefill_" or "baton_decode_".
std::string MetricPrefix(v1::WorkerRole role);

// Adds the metrics of workers of both roles: the worker's identity and the load of its core. `core`
// and `links` are read at every scrape, on the metrics thread. `core` must outlive the last call of
// the registry's Text().
void AddWorkerMetrics(const v1::Registration& registration, const WorkerCore* core,
                      std::function<std::vector<ProvenLink>()> links, MetricRegistry* registry);

}  // namespace baton
