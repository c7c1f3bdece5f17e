#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/program.h"
#include "tests/goodput/load/load_spec.h"

namespace baton {

// Names of the flags that describe a load, for every subcommand that runs one.
const std::vector<std::string>& LoadFlagNames();

// The flags of LoadFlagNames() in groups, as --help shows them.
std::vector<FlagGroup> LoadFlagGroups();

// Reads the flags of a load. InvalidArgument names the flag that is wrong. Targets are left empty.
// The warm-up is 30 s if it was not given; SetTargets may lengthen it.
absl::StatusOr<LoadSpec> LoadSpecFromFlags();

// Sets the resolved targets; a warm-up that was not given becomes the longer of 30 s and five TTFT
// targets.
void SetTargets(const SloTargets& targets, LoadSpec* spec);

}  // namespace baton
