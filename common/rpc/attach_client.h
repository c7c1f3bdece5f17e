#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "baton/v1/membership.pb.h"

namespace baton {

// Keeps a worker attached to every router it is given: one Attach stream each, opened again with a
// pause whenever it breaks, names resolved again and again (a name with several addresses is
// several routers). Losing a router ends nothing else. The first failure to reach a router, or to
// resolve a name, is logged with its reason and what to check, later ones once per
// `warning_interval`.
class AttachClient {
 public:
  struct Options {
    std::vector<std::string> routers;  // host:port
    v1::Registration registration;
    std::string token;
    absl::Duration report_interval = absl::Seconds(1);
    absl::Duration resolve_interval = absl::Seconds(5);
    absl::Duration longest_pause = absl::Seconds(1);  // between two tries at one router
    absl::Duration keep_peers =
        absl::Seconds(30);  // what a lost router said still counts this long
    // Pause between two warnings about the same router that can't be reached.
    absl::Duration warning_interval = absl::Seconds(60);
    // Called by its thread when attached() has changed, with the new number; may be empty.
    std::function<void(int attached)> on_attached;
  };
  // Starts a thread. Both functions are called from it: `load` for each report (nothing: that
  // report is left out, and routers soon count the worker as dead), `peers` with the union of what
  // all routers say whenever that changes; `none_fits` where it is empty and one of them says so.
  AttachClient(Options options, std::function<std::optional<v1::LoadReport>()> load,
               std::function<void(const v1::Peers&)> peers);
  // Ends the streams and the thread.
  ~AttachClient();

  // Any thread. Routers that have taken this worker, and whose peers `peers` has been told of.
  int attached() const;
  // Any thread. The next report goes out at once.
  void ReportNow();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "host:port,host:port" taken apart. InvalidArgument names the part that is none.
absl::StatusOr<std::vector<std::string>> ParseRouters(absl::string_view list);

}  // namespace baton
