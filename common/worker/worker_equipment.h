#pragma once

#include <vector>

#include "common/base/program.h"
#include "common/worker/backend_factory.h"

namespace baton {

// The parts in which a shipped worker program differs from its test program (tests/programs): the
// test program has more backends.
struct WorkerEquipment {
  std::vector<BackendFactory> backends;  // Backends beside `cpu`.
  std::vector<FlagGroup> flag_groups;    // Flags of the additional backends, for --help.
};

// Returns the equipment of shipped workers, which is the backend `cuda`.
WorkerEquipment ShippedEquipment();

}  // namespace baton
