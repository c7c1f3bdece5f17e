#pragma once

#include "router/index/worker_key.h"

namespace baton {

// Number of leading blocks of a prompt whose KV a worker holds, or will hold soon.
struct HeldBlocks {
  WorkerKey worker = 0;
  int blocks = 0;  // At least 1.
  bool operator==(const HeldBlocks&) const = default;
};

}  // namespace baton
