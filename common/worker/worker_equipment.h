#pragma once

#include <vector>

#include "common/base/program.h"
#include "common/worker/backend_factory.h"

namespace baton {

// The differences between a shipped worker program and its test program (tests/programs): the test
// program has more backends, and checks more.
struct WorkerEquipment {
  std::vector<BackendFactory> backends;  // Backends beside `cpu`.
  std::vector<FlagGroup> flag_groups;    // Flags of the additional backends, for --help.
  bool check_cached_kv = false;          // PrefixCacheSettings::check_content.
};

// Returns the backends that shipped programs have in addition to `cpu`: only `cuda`.
WorkerEquipment ShippedEquipment();

}  // namespace baton
