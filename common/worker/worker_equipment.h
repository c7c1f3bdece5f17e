#pragma once

#include <vector>

#include "common/base/program.h"
#include "common/worker/backend_factory.h"

namespace baton {

// The parts in which the shipped program of a worker and its test program (tests/programs) differ:
// the test program has more backends.
struct WorkerEquipment {
  std::vector<BackendFactory> backends;  // Beside `cpu`.
  std::vector<FlagGroup> flag_groups;    // Flags of these backends, for --help.
};

// Returns what shipped workers have: `cuda`.
WorkerEquipment ShippedEquipment();

}  // namespace baton
