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

// Reads the flags of a load. The message of an InvalidArgument names the wrong flag. Targets are
// left empty. The warm-up is 30 s if no flag sets it; SetTargets may lengthen it.
absl::StatusOr<LoadSpec> LoadSpecFromFlags();

// Sets the absolute targets. If no flag sets the warm-up, it becomes 30 s or five TTFT targets,
// whichever is longer.
void SetTargets(const SloTargets& targets, LoadSpec* spec);

}  // namespace baton
