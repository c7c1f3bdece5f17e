#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "kernels/device/runtime/kernel.h"

namespace baton::simt {

class MemoryMap;

// clang-format off
// How a grid is run. Every choice that a GPU leaves open is made by the seed, the same way in every
// run:
//   seed % 3      which of those that can go on does: blocks, warps and lanes in ascending order, in
//                 descending order, or by priorities drawn anew at every barrier
//   seed / 3 % 2  the data of a cp.async lands as late as its wait allows, or at once
// so 0 to 5 are all kinds, and further seeds draw other priorities.
// clang-format on
struct SimtOptions {
  uint64_t seed = 0;
  size_t max_shared_bytes = 99 << 10;  // of a block; the default is the least of sm_80 and newer
  // What the kernel may touch besides its own shared memory and parameters, and the program's
  // constants; null: anything. Asked by CopyAsync16, and by every access of a checked kernel, which
  // also tells it what has been written.
  MemoryMap* memory = nullptr;
  bool check = true;  // false: a checked kernel runs without its checks
  // Counts how often the lanes of a warp met for each operation, as messages name it ("Mma"). Shows
  // which work a kernel leaves out. Null: nothing is counted.
  std::map<std::string, int64_t>* collectives = nullptr;
};

// Runs every thread of every block on the calling thread, blocks one after another, and returns
// when all are through. Any OS thread; each keeps the stacks of its largest block until it ends.
//
// InvalidArgument: a shape or size that no kernel or this one can't have; nothing has run.
// ResourceExhausted: no memory for stacks. Internal: the kernel broke a rule of device_code.h; the
// message names kernel, block, thread and place, and the grid stopped there.
absl::Status RunGrid(const Kernel& kernel, const LaunchShape& shape, const void* params,
                     const SimtOptions& options);

}  // namespace baton::simt
