#pragma once

#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::emulated_kernels {

// Kernels that break one rule each, by ProbeParams::which; 0 and those that say so break none.

// clang-format off
// Faults in the shared memory of one block of 64 threads. "Right" marks a case without a fault. In
// 4 and 14 the write comes last if the threads run in ascending order.
//   Between warps, without a barrier:
//     1   Each thread writes its word, then reads a word that a thread of the other warp writes.
//     2   Each thread reads such a word, then writes its own.
//     3   Threads of both warps write the same word.
//     4   Both warps read a word, and a thread of the second warp writes it.
//   Between lanes of a warp:
//     10  Right: SyncWarp stands between the accesses.
//     11, 12, 13  As 1, 2 and 3, without SyncWarp.
//     14  All lanes read a word, and the last lane writes it.
//     15  As 11, with a shuffle where SyncWarp should be.
//   Shared memory as an operand of a matrix instruction:
//     16  Operand b of an mma is in words that the other warp writes.
//     17  Several lanes have the same words for the result d of an mma.
//     18  Two lanes have the same words for the result of an ldmatrix.
//     19  Right: operands a and b of an mma are in words that are only read.
//   Parts of a word:
//     20, 21  Right: different threads write different bytes (20) or halves (21) of a word.
//     22  The bytes that different threads write overlap.
//   Reads of what nobody has written:
//     30  A whole word.
//     31  The upper half of a word.
//   Copies:
//     40  The next copy overwrites a stage that another warp may still read.
//   Atomic adds:
//     50  Right: all threads add to one word, and read it after a barrier.
//     51, 52  Another warp (51) or another lane (52) reads the words without waiting for the adds.
//     53, 54  One warp reads (53) or writes (54) the words to which the other warp adds.
//     55  Adds to words that nobody has written.
//     56  Adds at misaligned addresses.
// clang-format on
extern const Kernel kSharedFaults;

// 32 threads, 3 blocks; out has a word for each block and thread. 1 all blocks write a word, 2 a
// block reads what the next one writes, 3 all read a word and then the last one writes it (in
// ascending order), 4 reads what nobody has written, 5 all blocks add to a word (right), 6 and then
// read it.
extern const Kernel kGlobalFaults;

// 64 threads, 256 bytes of dynamic shared memory; in has 512 words. 1 beyond a shared array, 2 the
// same with another one behind it, 3 beyond dynamic shared memory, 4 before global memory, 5 across
// its end, 6 writes parameters, 7 another thread's stack, 8 writes a variable of the program, 9
// null, 10 reads a constant of the program (right), 11 misaligned, 12 memcpy across the end, 13
// memset beyond a shared array.
extern const Kernel kBoundsFaults;

// Accesses by a program in `in`, of blocks of 64 threads: the number of phases, and for each of
// them what ends it and then a step for every thread of the grid. The memory is 16 bytes: shared
// ones, or with `which` 1 those at out.
struct ProgramStep {
  enum End : uint32_t { kNothing, kSyncWarp, kSyncThreads };
  // A step: 0 nothing; else the access's first byte, whether it writes, and its size.
  static constexpr uint32_t Encode(int at, bool write, int bytes) {
    return 1u << 31 | static_cast<uint32_t>(bytes << 8 | (write ? 1 : 0) << 4 | at);
  }
};
extern const Kernel kProgram;

}  // namespace baton::emulated_kernels
