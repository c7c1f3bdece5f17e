#pragma once

#include <cstdint>

namespace baton {

using TokenId = int32_t;       // index into the model's vocabulary
using BlockId = int32_t;       // index into one worker's KV pool
using WorkerEpoch = uint64_t;  // random, new at each process start, never 0

}  // namespace baton
