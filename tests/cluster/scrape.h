#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/exposition.h"
#include "tests/cluster/process.h"

namespace baton {

// Returns the metrics address of a program that was started with --metrics-listen. The program's
// log has this address.
absl::StatusOr<std::string> MetricsAddress(const Process& process);
// Returns the body of the metrics page. Returns Unavailable if there is no answer, or if the HTTP
// status is not 200.
absl::StatusOr<std::string> ScrapeText(const std::string& address);
// Reads the metrics page of `process` and parses it strictly.
absl::StatusOr<Exposition> Scrape(const Process& process);

}  // namespace baton
