#include "common/metrics/metrics_flag.h"

#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/program.h"

ABSL_FLAG(std::string, metrics_listen, "",
          "HOST:PORT to serve metrics on (HTTP, GET /metrics, Prometheus' text format); port 0 "
          "takes any free port; default: no metrics are served");

namespace baton {

std::unique_ptr<MetricsServer> ListenForMetrics() {
  const std::string listen = absl::GetFlag(FLAGS_metrics_listen);
  if (listen.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Listen({.listen = listen});
  if (!server.ok()) RefuseToStart(absl::StrCat("--metrics-listen: ", server.status().message()));
  return *std::move(server);
}

void ServeMetrics(MetricsServer* server, const MetricRegistry* registry) {
  if (server == nullptr) return;
  server->Serve([registry] { return registry->Text(); });
  PrintAtStart(absl::StrCat("metrics on ", server->address(), "\n"));
  Log(Severity::kInfo, "metrics", {{"address", server->address()}});
}

}  // namespace baton
