#include "router/router_metrics.h"

#include <algorithm>

namespace baton {

void AddRouterMetrics(const RouterServer* router, MetricRegistry* registry) {
  router->request_metrics().AddTo(registry);
  registry->AddGauge("baton_router_requests_waiting", "Requests in the queue.", {},
                     [router] { return double(router->queued()); });
  registry->AddGauge("baton_router_requests_running",
                     "Requests that have left the queue and have not ended.", {}, [router] {
                       const RouterCounters counters = router->counters();
                       const double open = double(counters.arrived) -
                                           double(counters.finished_ok + counters.finished_error);
                       return std::max(0.0, open - double(router->queued()));
                     });
  const auto counter = [&](const char* name, const char* help, uint64_t RouterCounters::*member,
                           const MetricRegistry::Labels& labels = {}) {
    registry->AddCounter(name, help, labels,
                         [router, member] { return double(router->counters().*member); });
  };
  counter("baton_router_requests_shed_total", "Requests refused because the queue was full.",
          &RouterCounters::shed);
  counter("baton_router_migrations_total",
          "Times a request went back to prefill because a worker failed it.",
          &RouterCounters::migrations);
  counter("baton_router_outgrown_total",
          "Times a request went back to prefill because its rotary table had come to its end.",
          &RouterCounters::outgrown);
  counter("baton_router_data_loss_total", "Legs that failed with DataLoss or broke the protocol.",
          &RouterCounters::data_loss);
  counter("baton_router_diverged_total",
          "Requests failed because a position had two different tokens.",
          &RouterCounters::diverged);
  counter("baton_router_identity_changes_total",
          "Times another model fingerprint or numerics id than before was served.",
          &RouterCounters::identity_changes);
  constexpr char kRefusals[] = "Times a worker refused a request because it was full.";
  counter("baton_router_worker_refusals_total", kRefusals, &RouterCounters::prefill_refused,
          {{"role", "prefill"}});
  counter("baton_router_worker_refusals_total", kRefusals, &RouterCounters::decode_refused,
          {{"role", "decode"}});
}

}  // namespace baton
