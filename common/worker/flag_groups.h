#pragma once

#include <vector>

#include "common/base/program.h"

namespace baton {

// The flags of a worker as --help shows them. `own` stands first: the flags of one kind of worker.
std::vector<FlagGroup> WorkerFlagGroups(FlagGroup own);

}  // namespace baton
