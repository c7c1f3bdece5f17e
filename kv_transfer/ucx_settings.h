#pragma once

#include <string>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/ucx_transport.h"

namespace baton {

// A failure of UCX in its own words.
absl::Status UcxError(absl::StatusCode code, absl::string_view what, ucs_status_t status);

// UCX's configuration as our transports need it. The caller releases it. Environment variables
// override it; what is used is logged.
absl::StatusOr<ucp_config_t*> UcxSettings(const UcxOptions& options);

// Takes UCX's hands off the process: its handlers of error signals and its hooks of memory calls.
// Its warnings and errors go to our log. Any number of times.
void TameUcx();

}  // namespace baton
