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
// Options for running a grid. The seed decides everything that a GPU leaves open. Two runs with the
// same seed are equal. The parts of the seed:
//   seed % 3      the order of blocks, warps and lanes that can run: 0 ascending, 1 descending,
//                 2 random; warps and lanes get a new order at every barrier
//   seed / 3 % 2  0: the data of a cp.async arrives as late as its wait allows; 1: immediately
// So the seeds 0 to 5 cover all kinds of schedules. Further seeds sample other random orders.
// clang-format on
struct SimtOptions {
  uint64_t seed = 0;
  size_t max_shared_bytes = 99 << 10;  // per block; default: the smallest limit of sm_80 and newer
  // The memory that the kernel may touch. Its own shared memory, its parameters and the program's
  // constants need not be listed. Null allows any memory. CopyAsync16 and every access of a checked
  // kernel check this; checked kernels also mark bytes as written.
  MemoryMap* memory = nullptr;
  bool check = true;  // false: a checked kernel runs without its checks
  // Counts for each collective operation, under its name in messages ("Mma"), how often a warp ran
  // it. Tests use the counts to see which work a kernel skips. Null: nothing is counted.
  std::map<std::string, int64_t>* collectives = nullptr;
};

// Runs every thread of every block on the calling thread, one block after another, and returns when
// all are done. Any OS thread may call. The thread keeps the stacks that its largest block needed,
// until the thread ends.
//
// Returns InvalidArgument, and runs nothing, for a shape or size that is not allowed for this
// kernel or for any kernel. Returns ResourceExhausted if there is no memory for stacks. Returns
// Internal if the kernel broke a rule of device_code.h: the grid has stopped there, and the message
// names kernel, block, thread and place.
absl::Status RunGrid(const Kernel& kernel, const LaunchShape& shape, const void* params,
                     const SimtOptions& options);

}  // namespace baton::simt
