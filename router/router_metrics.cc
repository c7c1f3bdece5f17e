#include "router/router_metrics.h"

#include <algorithm>

namespace baton {

void AddRouterMetrics(const RouterServer* router, MetricRegistry* registry) {
  router->request_metrics().AddTo(registry);
  registry->AddGauge("baton_router_requests_waiting", "Requests that wait in the queue.", {},
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
  counter(
      "baton_router_requests_shed_total",
      "Requests refused because the workers have too much to do: the queue, the inbox before it "
      "or the memory for requests was full, the predicted wait was too long, or the answer "
      "would have come after its deadline.",
      &RouterCounters::shed);
  counter("baton_router_migrations_total",
          "Times a request went back to prefill because a worker failed it.",
          &RouterCounters::migrations);
  counter(
      "baton_router_outgrown_total",
      "Times a request went back to prefill because it had reached the end of its rotary table.",
      &RouterCounters::outgrown);
  counter("baton_router_data_loss_total",
          "Legs (RPCs to workers) that failed with DataLoss or broke the protocol.",
          &RouterCounters::data_loss);
  counter("baton_router_diverged_total",
          "Requests that failed because workers gave two different tokens for one position, and "
          "so did those that computed it again.",
          &RouterCounters::diverged);
  counter("baton_router_identity_changes_total",
          "Times the router began to serve another model fingerprint or numerics id.",
          &RouterCounters::identity_changes);
  constexpr char kRefusals[] = "Times a worker refused a request because it was full.";
  counter("baton_router_worker_refusals_total", kRefusals, &RouterCounters::prefill_refused,
          {{"role", "prefill"}});
  counter("baton_router_worker_refusals_total", kRefusals, &RouterCounters::decode_refused,
          {{"role", "decode"}});
  registry->AddCounter("baton_router_text_calls_refused_total",
                       "Tokenize and Detokenize calls refused because too many ran, too many texts "
                       "waited, or too many answers had not been read.",
                       {}, [router] { return double(router->text_calls_refused()); });
  registry->AddCounter("baton_router_tool_arguments_dropped_total",
                       "Tool calls in conversations whose arguments were not the text of a JSON "
                       "object. The chat template saw an empty object instead.",
                       {}, [router] { return double(router->tool_arguments_dropped()); });
  registry->AddGauge("baton_router_connections", "Open connections of clients and workers.", {},
                     [router] { return double(router->connections().open); });
  const auto connection_counter = [&](const char* name, const char* help,
                                      uint64_t ConnectionCounters::*member,
                                      const MetricRegistry::Labels& labels = {}) {
    registry->AddCounter(name, help, labels,
                         [router, member] { return double(router->connections().*member); });
  };
  constexpr char kName[] = "baton_router_connections_refused_total";
  constexpr char kHelp[] = "Connections that were closed at once.";
  connection_counter(kName, kHelp, &ConnectionCounters::too_many, {{"reason", "limit"}});
  connection_counter(kName, kHelp, &ConnectionCounters::of_one, {{"reason", "address_limit"}});
  connection_counter(kName, kHelp, &ConnectionCounters::no_descriptor,
                     {{"reason", "no_descriptor"}});
  connection_counter("baton_router_connections_cut_total",
                     "Connections that were cut because too many of their calls were open or "
                     "cancelled, or because they sent too much of requests that were not "
                     "complete.",
                     &ConnectionCounters::cut);
}

}  // namespace baton
