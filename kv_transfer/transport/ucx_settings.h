#pragma once

#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {

// A failure of UCX in its own words.
absl::Status UcxError(absl::StatusCode code, absl::string_view what, ucs_status_t status);

// UCX's configuration as our transports need it. The caller releases it. Environment variables
// override it; what is used is logged.
absl::StatusOr<ucp_config_t*> UcxSettings(const UcxOptions& options);

// While it lives, what UCX says on this thread is kept instead of logged. What has not been taken
// at its end is logged then.
class UcxWordsHeld {
 public:
  UcxWordsHeld();
  ~UcxWordsHeld();
  UcxWordsHeld(const UcxWordsHeld&) = delete;
  UcxWordsHeld& operator=(const UcxWordsHeld&) = delete;

  // The first thing that UCX said, "; UCX says: ..." for the end of a message, or "". The rest is
  // dropped: it repeats the first one from further out.
  std::string Take();

 private:
  std::vector<std::string> said_;
};

// Takes UCX's hands off the process: its handlers of error signals and its hooks of memory calls.
// Its warnings and errors go to our log. Any number of times.
void TameUcx();

}  // namespace baton
