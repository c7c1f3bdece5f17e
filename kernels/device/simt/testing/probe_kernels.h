#pragma once

#include <cstdint>

#include "kernels/device/runtime/kernel.h"

namespace baton::emulated_kernels {

// Small kernels. Each shows one behaviour of the emulator, most of them a fault. Their cases are
// chosen by ProbeParams::which; "right" marks a case without a fault.

struct ProbeParams {
  uint32_t* out = nullptr;
  const uint32_t* in = nullptr;
  int which = 0;
};

// Writes 8 words for each thread of the grid: its index in the block (twice: directly, and from
// warp and lane), then x, y and z of its block, then x, y and z of the grid.
extern const Kernel kIndices;
// Writes the order in which the threads ran: out[i] for thread i before a barrier, and then again,
// out[threads + i], after it. out[2 * threads] is the counter.
extern const Kernel kOrder;

// One warp; in [32] and out [32]. which: 0 ShuffleXor 5, 1 ShuffleDown 3, 2 Shuffle of lane in[l],
// 3 WarpSum, 4 WarpMax, 5 Ballot(in > 0), 6 the butterfly of ShuffleXor.
extern const Kernel kShuffles;
// in: [32][4] of a, [32][2] of b, [32][4] of d; out [32][4]. which: 0 bf16, 1 f16.
extern const Kernel kMma;
// in: 32 rows of 4 words; out [32][4]. which: 0 x4, 1 x4 transposed, 2 x2, 3 x2 transposed.
extern const Kernel kLoadMatrix;

// kBarriers, kExchange, kCopies and kShared have 64 threads.

// which: 0 right, 1 half of the threads return before the barrier, 2 they wait at two barriers, 3
// one lane waits in a shuffle instead, 4 lanes wait at two shuffles, 5 one lane returns before a
// shuffle.
extern const Kernel kBarriers;
// out[t] = in[t of another warp], through shared memory. `which` leaves out barriers (bits 0 and
// 1).
extern const Kernel kExchange;
// Copies with two groups of cp.async. which: 0 right, 1 no wait, 2 no barrier after the wait, 3 a
// wait that is too short, 4 misaligned, 5 not to shared memory, 6 right: the last copy is not
// `valid`, 7 reads before the wait, 8 writes the source before the wait.
extern const Kernel kCopies;
// out: the initial values of shared arrays, and how they are aligned.
extern const Kernel kShared;
extern const Kernel kTooMuchShared;
extern const Kernel kMisaligned;  // which: 0 right, 1 loads, 2 stores
extern const Kernel kLocals;      // out[t] = 45 + t, computed in local arrays of several sizes
extern const Kernel kDeep;        // recursion of `which` frames of 1 KiB
extern const Kernel kWide;        // lane `which` has a frame larger than several stacks
constexpr int kWideFrameBytes = 300 << 10;

}  // namespace baton::emulated_kernels
