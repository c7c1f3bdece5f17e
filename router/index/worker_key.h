#pragma once

#include <cstdint>

namespace baton {

using WorkerKey = uint64_t;  // One process of a worker: an (address, epoch). Never 0.

}  // namespace baton
