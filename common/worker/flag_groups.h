#pragma once

#include <vector>

#include "common/base/program.h"

namespace baton {

// Returns the flags of a worker as --help shows them. `own` has the flags of one kind of worker and
// comes early; `equipment` has those of WorkerEquipment and comes last.
std::vector<FlagGroup> WorkerFlagGroups(FlagGroup own, const std::vector<FlagGroup>& equipment);

}  // namespace baton
