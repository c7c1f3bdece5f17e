#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

enum class Role { kRouter, kPrefill, kDecode };
inline constexpr Role kRoles[] = {Role::kRouter, Role::kPrefill, Role::kDecode};

// "router", "prefill" or "decode", as in the names of processes, programs and flag prefixes.
absl::string_view NameOf(Role role);

// The flags of one program by their names with dashes; true for one that takes no value.
using FlagTable = std::map<std::string, bool, std::less<>>;

// Parses what a program prints with --list-flags.
FlagTable ParseFlagTable(absl::string_view lines);

// The command line of `up`.
struct UpOptions {
  std::string model;
  bool demo = false;  // the model is the demo model, because no --model was given
  // What the machine had to spare before any worker was started; 0: not known. All workers size
  // their pools by it, so that one that starts later, or again, gets the same pool.
  uint64_t usable_memory_bytes = 0;
  int prefill = 1;
  int decode = 1;
  std::string mode = "disaggregated";
  std::string prompt = "Explain how a CPU works to a 5-year-old";
  std::string listen;  // of the router; empty: the default address, or a free port
  bool once = false;
  bool detach = false;
  bool check = false;  // the command line is checked, and nothing is started

  // Flags that are passed on to all processes of a role, as --NAME=VALUE, in the order given.
  std::map<Role, std::vector<std::string>> flags;
};

// Parses the words after `up`. `flags_of` tells which flags a role's program has; it is asked only
// for words that are no flags of `up` itself. InvalidArgument says which value is wrong, why, and
// what to write instead. Other errors are those of `flags_of`. With --check, words that `flags_of`
// can't decide about, because the programs are not built, are accepted.
absl::StatusOr<UpOptions> ParseUpOptions(
    const std::vector<std::string>& words,
    const std::function<absl::StatusOr<FlagTable>(Role)>& flags_of);

// The value that a role's program takes for --NAME: the last one given; empty if none is.
std::string PassedValue(const UpOptions& options, Role role, absl::string_view name);

}  // namespace baton
