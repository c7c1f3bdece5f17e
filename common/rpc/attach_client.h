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

// Keeps a worker attached to all its routers, with one Attach stream each. A stream that breaks is
// opened again after a pause. Names are resolved repeatedly; each address of a name counts as one
// router. Losing one router does not affect the others. The first failure to reach a router, or to
// resolve a name, is logged with its reason and what to check. Later failures are logged once per
// `warning_interval`.
class AttachClient {
 public:
  // Tells how many routers have accepted this worker, and if any router may refuse it.
  struct Standing {
    // Number of routers that have accepted this worker and whose peers were passed to `peers`.
    int attached = 0;
    // True if there are known routers, and each has accepted this worker or can't be reached. False
    // while a router refuses it, or has not answered its first attempt yet.
    bool undisputed = false;
    bool operator==(const Standing&) const = default;
  };
  // Changes of the worker's prefix cache, as one message.
  struct CacheMessage {
    v1::CacheChanges changes;
    bool more = false;  // true if more changes follow, so that the next message is due at once
  };
  using CacheReader = std::function<std::optional<CacheMessage>()>;
  struct Options {
    std::vector<std::string> routers;  // host:port of each router
    v1::Registration registration;
    std::string token;
    absl::Duration report_interval = absl::Milliseconds(250);
    absl::Duration resolve_interval = absl::Seconds(5);
    // Longest pause between two attempts to reach one router.
    absl::Duration longest_pause = absl::Seconds(1);
    absl::Duration keep_peers =
        absl::Seconds(30);  // time for which the peers named by a lost router stay valid
    // Time between two warnings about the same unreachable router.
    absl::Duration warning_interval = absl::Seconds(60);
    // Called once for each stream. Returns a function whose calls return the worker's cached
    // blocks, and then what has changed; nothing if there is nothing to tell now. Both are called
    // on the client's thread. If it is empty, no changes are sent.
    std::function<CacheReader()> new_cache_reader;
    // Shortest time between two messages with changes to one router, unless the first one could not
    // hold all changes.
    absl::Duration cache_interval = absl::Milliseconds(200);
    // Called on the client's thread whenever the standing has changed. May be empty.
    std::function<void(const Standing&)> on_standing;
  };
  // Starts a thread, which calls `load` and `peers`. `load` returns the next report; if it returns
  // nothing, no report is sent, and routers soon count the worker as dead. `peers` gets the union
  // of the peers that all routers name, whenever this union changes. If the union is empty and some
  // router says that no peer fits, Peers::none_fits is set.
  AttachClient(Options options, std::function<std::optional<v1::LoadReport>()> load,
               std::function<void(const v1::Peers&)> peers);
  // Ends the streams and the thread.
  ~AttachClient();

  // Any thread. Returns the number of routers that have accepted this worker. A router counts only
  // once its peers have been passed to the callback `peers`.
  int attached() const;
  // Any thread. Sends the next report without waiting for its interval.
  void ReportNow();
  // Any thread. Tells that the prefix cache has changed since a cache reader was called last.
  void CacheChanged();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Splits "host:port,host:port". Returns InvalidArgument with the part that is not host:port.
absl::StatusOr<std::vector<std::string>> ParseRouters(absl::string_view list);

}  // namespace baton
