#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/exposition.h"
#include "tests/cluster/process.h"

namespace baton {

// Where a program that was started with --metrics-listen serves, as its log says.
absl::StatusOr<std::string> MetricsAddress(const Process& process);
// The page as it came, without its header. Unavailable when nobody answers, or not with 200.
absl::StatusOr<std::string> ScrapeText(const std::string& address);
// The same, read strictly.
absl::StatusOr<Exposition> Scrape(const Process& process);

}  // namespace baton
