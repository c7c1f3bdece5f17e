#pragma once

#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::emulated_kernels {

// Kernels that break one rule each, by ProbeParams::which; 0 and those that say so break none.

// clang-format off
// 64 threads. Shared memory of one block:
//   between warps   1 a word is read while another warp writes it, 2 the other way round, 3 two write
//                   it, 4 both warps read a word and then the second writes it (in ascending order)
//   in a warp       10 right, with SyncWarp; 11 to 13 like 1 to 3 between lanes, 14 all lanes read a
//                   word and then the last writes it (in ascending order), 15 a shuffle in place of
//                   SyncWarp
//   as registers    16 b of an mma that another warp writes, 17 d of several lanes, 18 ldmatrix's of
//                   two lanes, 19 a and b that are only read, right
//   parts of words  20 bytes and 21 halves by different threads, right; 22 bytes that overlap
//   unwritten       30 a word, 31 the upper half of one
//   adds            50 to one word by all, read after a barrier, right; 51 read by another warp without
//                   it, 52 by another lane, 53 a read that another warp adds to, 54 a write that
//                   another warp adds to, 55 to a word that nobody has written, 56 misaligned
//   copies          40 a stage is overwritten by the next copy while another warp may still read it
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
