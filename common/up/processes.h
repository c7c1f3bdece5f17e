#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/up/up_options.h"

namespace baton {

// One process that `up` keeps running.
struct ProcessSpec {
  std::string name;  // such as "router", "prefill-1" or "decode-2"
  Role role = Role::kRouter;
};

// Returns the processes that the options ask for, the router first.
std::vector<ProcessSpec> ProcessesOf(const UpOptions& options);

// Returns the name of the program for a role, such as "baton-decode".
std::string ProgramOf(Role role);

// Returns the router's arguments. The router listens at `listen`, and for HTTP at `http_listen`; ""
// means no HTTP.
std::vector<std::string> RouterArguments(const UpOptions& options, absl::string_view listen,
                                         absl::string_view http_listen);

// Returns a worker's arguments. The worker attaches to the router at `router`, and also to the
// routers that --routers names.
std::vector<std::string> WorkerArguments(const UpOptions& options, Role role,
                                         absl::string_view router);

// Returns flags that give one worker its share of the memory that all workers on this machine use
// together. If the user gives one of these flags too, the user's flag comes later on the command
// line and wins.
std::vector<std::string> MemoryFlags(const UpOptions& options, Role role);

// Returns the time that a process of this role may take to end after SIGTERM: its --drain-grace
// plus five seconds.
absl::Duration StopLimit(const UpOptions& options, Role role);

// Returns the address at which programs on this machine reach a server that listens at `address`.
// If `address` means every address (0.0.0.0 or [::]), this is the loopback address.
std::string ReachableAddress(absl::string_view address);

}  // namespace baton
