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
// Writes the order in which the threads ran. Each thread takes numbers from a counter at out[2 *
// threads]. Thread i writes its first number, taken before a barrier, to out[i], and its second,
// taken after the barrier, to out[threads + i].
extern const Kernel kOrder;

// Runs one collective operation in one warp. `in` and `out` have 32 words, one for each lane l.
// `which` chooses the operation:
//   0  ShuffleXor with mask 5
//   1  ShuffleDown by 3
//   2  Shuffle of l + 100 from lane in[l]
//   3  WarpSum
//   4  WarpMax
//   5  Ballot(in > 0)
//   6  ShuffleXor with masks 16, 8, 4, 2 and 1 in turn, as a sum over the warp does
extern const Kernel kShuffles;
// Runs one Mma of bf16 (`which` is 0) or f16 (`which` is 1). `in` holds a [32][4], then b [32][2],
// then d [32][4]. `out` is [32][4].
extern const Kernel kMma;
// Loads matrices from the 32 rows of 4 words in `in` to `out` [32][4]. `which` chooses the
// function:
//   0  LoadMatrix4
//   1  LoadMatrix4Transposed
//   2  LoadMatrix2
//   3  LoadMatrix2Transposed
extern const Kernel kLoadMatrix;

// The kernels kBarriers, kExchange, kCopies and kShared run in blocks of 64 threads.

// Threads that wait at a barrier or in a shuffle. `which` chooses the case:
//   0  No fault: all threads wait at the same barrier.
//   1  Half of the threads return before the barrier.
//   2  The threads wait at two different barriers.
//   3  One lane waits in a shuffle, and the others at the barrier.
//   4  The lanes wait at two different shuffles.
//   5  One lane returns before a shuffle.
extern const Kernel kBarriers;
// Each thread passes a word of `in` through shared memory to a thread of the other warp, which
// writes the word to `out`. Bits 0 and 1 of `which` each leave out one barrier.
extern const Kernel kExchange;
// Copies with two groups of cp.async. `which` chooses the case:
//   0  Right.
//   1  No wait.
//   2  No barrier after the wait.
//   3  A wait that is too short.
//   4  A misaligned address.
//   5  A destination that is not in shared memory.
//   6  Right: the last copy is not `valid`.
//   7  Reads the copied bytes before the wait.
//   8  Writes the source before the wait.
extern const Kernel kCopies;
// Writes to `out` the initial values of shared arrays, and how they are aligned.
extern const Kernel kShared;
extern const Kernel kTooMuchShared;
extern const Kernel kMisaligned;  // which: 0 right, 1 misaligned loads, 2 misaligned stores
extern const Kernel kLocals;      // out[t] = 45 + t, computed in local arrays of several sizes
extern const Kernel kDeep;        // recursion of `which` frames of 1 KiB
extern const Kernel kWide;        // lane `which` has a frame larger than several stacks
constexpr int kWideFrameBytes = 300 << 10;

}  // namespace baton::emulated_kernels
