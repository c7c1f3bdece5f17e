#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

enum class Role { kRouter, kPrefill, kDecode };
inline constexpr Role kRoles[] = {Role::kRouter, Role::kPrefill, Role::kDecode};

// Returns "router", "prefill" or "decode", as used in the names of processes, programs and flag
// prefixes.
absl::string_view NameOf(Role role);

// The flags of one program. The key is the name with dashes; the value is true for a flag that
// takes no value.
using FlagTable = std::map<std::string, bool, std::less<>>;

// Parses the output of a program's --list-flags.
FlagTable ParseFlagTable(absl::string_view lines);

// The command line of `up`.
struct UpOptions {
  std::string model;
  bool demo = false;  // true if the demo model is served because no --model was given
  // Memory that was available on the machine before any worker was started; 0 if unknown. All
  // workers size their pools by this value. So a worker that starts later, or restarts, gets a pool
  // of the same size.
  uint64_t usable_memory_bytes = 0;
  int prefill = 1;
  int decode = 1;
  std::string mode = "disaggregated";
  std::string prompt = "Explain how a CPU works to a 5-year-old";
  std::string listen;  // address of the router; if empty, the default address or a free port
  // The router's address for HTTP; if it is not given, the default address or a free port; "": no
  // HTTP.
  std::optional<std::string> http_listen;
  bool once = false;
  bool detach = false;
  bool check = false;  // only checks the command line, and starts nothing

  // Flags that are passed on to all processes of a role, as --NAME=VALUE, in the given order.
  std::map<Role, std::vector<std::string>> flags;
};

// Parses the words after `up`. `flags_of` returns the flags of a role's program; it is called only
// for words that are not flags of `up` itself. Returns InvalidArgument, with the wrong value, the
// reason and what to write instead, or an error of `flags_of`. With --check, the programs may not
// be built yet, so words that `flags_of` can't decide about are accepted.
absl::StatusOr<UpOptions> ParseUpOptions(
    const std::vector<std::string>& words,
    const std::function<absl::StatusOr<FlagTable>(Role)>& flags_of);

// Returns the value that a role's program gets for --NAME: the last one given, or "" if the flag is
// not given.
std::string PassedValue(const UpOptions& options, Role role, absl::string_view name);

// Returns true if one of the processes is told to listen at this port, for anything but HTTP.
bool Claims(const UpOptions& options, int port);

}  // namespace baton
