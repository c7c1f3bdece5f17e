#pragma once

#include <vector>

#include "common/base/program.h"
#include "common/worker/backend_factory.h"

namespace baton {

// What the two programs of one kind of worker differ in: the shipped one, and the one for tests
// (tests/programs), which is the same program with more backends.
struct WorkerEquipment {
  std::vector<BackendFactory> backends;  // Beside `cpu`.
  std::vector<FlagGroup> flag_groups;    // Flags of these backends, for --help.
};

// Returns what shipped workers have: `cuda`.
WorkerEquipment ShippedEquipment();

}  // namespace baton
