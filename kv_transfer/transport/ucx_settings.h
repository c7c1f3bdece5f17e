#pragma once

#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {

// Returns a status that says `what` failed, with UCX's text for `status`.
absl::Status UcxError(absl::StatusCode code, absl::string_view what, ucs_status_t status);

// Returns UCX's configuration with our settings. The caller releases it (ucp_config_release); after
// an error there is nothing to release. Environment variables override our settings, which is
// logged.
absl::StatusOr<ucp_config_t*> UcxSettings(const UcxOptions& options);

// While this object lives, UCX's log messages on the thread that made it are kept instead of
// logged. The destructor logs the messages that are still kept. Use this class only for a local
// variable. Each thread may have at most one such object at a time, and must destroy it itself.
class UcxWordsHeld {
 public:
  UcxWordsHeld();
  ~UcxWordsHeld();
  UcxWordsHeld(const UcxWordsHeld&) = delete;
  UcxWordsHeld& operator=(const UcxWordsHeld&) = delete;

  // Returns true if some message of UCX contains `part`.
  bool Contain(absl::string_view part) const;

  // Returns the first message of UCX as "; UCX says: ...", for the end of an error message, or ""
  // if UCX said nothing. Drops the other messages, which repeat the first one from higher layers.
  std::string Take();

 private:
  std::vector<std::string> said_;
};

// Disables UCX's handlers of error signals and its hooks of memory calls, and sends UCX's warnings
// and errors to our log. May be called any number of times.
void TameUcx();

}  // namespace baton
