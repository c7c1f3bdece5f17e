#pragma once

#include <vector>

#include "common/base/program.h"
#include "common/worker/backend_factory.h"

namespace baton {

// The backends of a worker program. A shipped program and its test program (tests/programs) differ
// only in this: the test program has more backends.
struct WorkerEquipment {
  std::vector<BackendFactory> backends;  // Backends beside `cpu`.
  std::vector<FlagGroup> flag_groups;    // Flags of the additional backends, for --help.
};

// Returns the backends that shipped programs have in addition to `cpu`: only `cuda`.
WorkerEquipment ShippedEquipment();

}  // namespace baton
