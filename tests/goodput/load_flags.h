#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/program.h"
#include "tests/goodput/load/load_spec.h"

namespace baton {

// The flags that describe a load, for every subcommand that runs one.
const std::vector<std::string>& LoadFlagNames();

// The same as --help shows them.
std::vector<FlagGroup> LoadFlagGroups();

// InvalidArgument names the flag. Targets are left empty; the warm-up, if it was not given, is
// 30 s, which SetTargets may lengthen.
absl::StatusOr<LoadSpec> LoadSpecFromFlags();

// Sets the resolved targets; a warm-up that was not given becomes the longer of 30 s and five TTFT
// targets.
void SetTargets(const SloTargets& targets, LoadSpec* spec);

}  // namespace baton
