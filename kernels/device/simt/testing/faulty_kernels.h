#pragma once

#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::emulated_kernels {

// Each kernel breaks one rule of device code, chosen by ProbeParams::which. Value 0, and the values
// marked "right", break none.

// clang-format off
// Faults in the shared memory of one block of 64 threads. "Right" marks a case without a fault. In
// cases 4 and 14 the write comes last if the threads run in ascending order.
//   Between warps, without a barrier:
//     1   Each thread writes its word, then reads a word that a thread of the other warp writes.
//     2   Each thread reads a word that the other warp writes, then writes its own.
//     3   Threads of both warps write the same word.
//     4   Both warps read a word, and a thread of the second warp writes it.
//   Between lanes of a warp:
//     10  Right: SyncWarp stands between the accesses.
//     11, 12, 13  Like cases 1, 2 and 3, but between two lanes, without SyncWarp.
//     14  All lanes read a word, and the last lane writes it.
//     15  Like case 11, with a shuffle where SyncWarp should be.
//   Shared memory as an operand of a matrix instruction:
//     16  Operand b of an mma is in words that the other warp writes.
//     17  Several lanes store the result d of an mma to the same words.
//     18  Two lanes store the result of an ldmatrix to the same words.
//     19  Right: operands a and b of an mma are in words that are only read.
//   Parts of a word:
//     20, 21  Right: different threads write different bytes (20) or halves (21) of a word.
//     22  The bytes that different threads write overlap.
//   Reads of unwritten bytes:
//     30  A whole word.
//     31  The upper half of a word.
//   Copies:
//     40  The next copy overwrites a stage that another warp may still read.
//   Atomic adds:
//     50  Right: all threads add to one word, and read it after a barrier.
//     51, 52  Another warp (51) or another lane (52) reads the words without waiting for the adds.
//     53, 54  One warp reads (53) or writes (54) the words to which the other warp adds.
//     55  Adds to unwritten words.
//     56  Adds at misaligned addresses.
// clang-format on
extern const Kernel kSharedFaults;

// Faults in global memory, with 3 blocks of 32 threads. `out` has one word per thread of the grid.
// "Right" marks a case without a fault.
//   1  All blocks write the same word.
//   2  A block reads what the next block writes.
//   3  All blocks read a word, and the last block (in ascending order) writes it.
//   4  Reads unwritten bytes.
//   5  Right: all blocks add to a word.
//   6  All blocks add to a word, and then all blocks read it.
extern const Kernel kGlobalFaults;

// Accesses out of bounds, with 64 threads and 256 bytes of dynamic shared memory. `in` has 512
// words.
//   1  Beyond a shared array.
//   2  Beyond a shared array that has another one behind it.
//   3  Beyond dynamic shared memory.
//   4  Before global memory.
//   5  Across the end of global memory.
//   6  Writes the parameters.
//   7  Another thread's stack.
//   8  Writes a variable of the program.
//   9  The null address.
//   10  Right: reads a constant of the program.
//   11  A misaligned address.
//   12  memcpy across the end of global memory.
//   13  memset beyond a shared array.
extern const Kernel kBoundsFaults;

// kProgram runs a program of accesses, in blocks of 64 threads. The words of `in` are the program:
// the number of phases and then, for each phase, the barrier that ends it (End) and one step for
// every thread of the grid. A step is one access or none. All accesses lie in the same 16 bytes:
// of `out` if the parameter `which` is 1, else of shared memory.
struct ProgramStep {
  enum End : uint32_t { kNothing, kSyncWarp, kSyncThreads };
  // Returns a step as one word: the access's first byte, whether it writes, and its size. The word
  // 0 is a step without access.
  static constexpr uint32_t Encode(int at, bool write, int bytes) {
    return 1u << 31 | static_cast<uint32_t>(bytes << 8 | (write ? 1 : 0) << 4 | at);
  }
};
extern const Kernel kProgram;

}  // namespace baton::emulated_kernels
