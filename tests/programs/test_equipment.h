#pragma once

#include "common/worker/worker_equipment.h"

namespace baton {

// Returns the backends of the shipped workers, plus the backends `cuda-emulated` and `fake`, all
// with their flags. The flags are read when a worker opens its device.
WorkerEquipment TestEquipment();

}  // namespace baton
