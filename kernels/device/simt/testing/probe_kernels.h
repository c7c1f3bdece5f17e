#pragma once

#include <cstdint>

#include "kernels/device/runtime/kernel.h"

namespace baton::emulated_kernels {

// Small kernels that show one behaviour of the emulator each, most of them a fault.

struct ProbeParams {
  uint32_t* out = nullptr;
  const uint32_t* in = nullptr;
  int which = 0;
};

// out[linear thread of the grid] = thread of its block, and its block's z, y, x and the grid's.
extern const Kernel kIndices;
// out[i] counts: in which order thread i ran, from in[0] on (kept in out[threads]).
extern const Kernel kOrder;

// One warp. in [32] and out [32].
extern const Kernel kShuffles;  // which: 0 ShuffleXor 5, 1 ShuffleDown 3, 2 Shuffle of lane in[l],
                                // 3 WarpSum, 4 WarpMax, 5 Ballot(in > 0), 6 the butterfly
// in: [32][4] of a, [32][2] of b, [32][4] of d; out [32][4]. which: of 0 bf16, 1 f16
extern const Kernel kMma;
// in: 32 rows of 4 words; out [32][4]. which: 0 x4, 1 x4 transposed, 2 x2, 3 x2 transposed.
extern const Kernel kLoadMatrix;

// 64 threads.
extern const Kernel kBarriers;  // which: 0 right, 1 half return before it, 2 two places, 3 one lane
                                // waits in a shuffle instead, 4 lanes at two shuffles, 5 one lane
                                // returns before a shuffle
extern const Kernel kExchange;  // out[t] = in[t of another warp], through shared memory; `which`
                                // barriers are left out (bits 0 and 1)
extern const Kernel kCopies;  // which: 0 right, 1 no wait, 2 no barrier after it, 3 a wait too few,
                              // 4 misaligned, 5 not to shared memory, 6 the last is not `valid`,
                              // 7 reads before the wait on purpose, 8 writes the source before it
extern const Kernel kShared;  // out: what arrays hold at the start and how they are aligned
extern const Kernel kTooMuchShared;
extern const Kernel kMisaligned;  // which: 0 right, 1 loads, 2 stores
extern const Kernel kLocals;      // out[t] = 45 + t, by way of local arrays of several sizes
extern const Kernel kDeep;        // recursion of `which` frames of 1 KiB
extern const Kernel kWide;        // lane `which` has a frame of several stacks' size
constexpr int kWideFrameBytes = 300 << 10;

}  // namespace baton::emulated_kernels
