#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/up/up_options.h"

namespace baton {

// One process that `up` keeps running.
struct ProcessSpec {
  std::string name;  // "router", "prefill-1", "decode-2"
  Role role = Role::kRouter;
};

// The processes that the options ask for. The router comes first.
std::vector<ProcessSpec> ProcessesOf(const UpOptions& options);

// The name of the program that runs a role: "baton-decode".
std::string ProgramOf(Role role);

// The router's arguments. It listens at `listen`.
std::vector<std::string> RouterArguments(const UpOptions& options, absl::string_view listen);

// A worker's arguments. It attaches to the router at `router`, and to the routers that --routers
// names besides.
std::vector<std::string> WorkerArguments(const UpOptions& options, Role role,
                                         absl::string_view router);

// The flags that give one worker its share of the memory that all workers of this machine use
// together. A flag of the same name on the command line comes later and wins.
std::vector<std::string> MemoryFlags(const UpOptions& options, Role role);

// How long a process of the role may take to end after SIGTERM: its --drain-grace, and five
// seconds.
absl::Duration StopLimit(const UpOptions& options, Role role);

// The address at which programs of this machine reach what listens at `address`: the loopback
// address where that is every address (0.0.0.0 or [::]).
std::string ReachableAddress(absl::string_view address);

}  // namespace baton
