#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/v1/membership.pb.h"
#include "common/metrics/metric_registry.h"
#include "common/worker/worker_core.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// "baton_prefill_" or "baton_decode_".
std::string MetricPrefix(v1::WorkerRole role);

// Adds the metrics that workers of both roles show: who they are, and the load of their core.
// `core`, which outlives the registry's last Text(), and `links` are asked at every scrape, from
// the metrics thread.
void AddWorkerMetrics(const v1::Registration& registration, const WorkerCore* core,
                      std::function<std::vector<ProvenLink>()> links, MetricRegistry* registry);

}  // namespace baton
