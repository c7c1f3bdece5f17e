#pragma once

// clang-format off
// The language of kernels. A kernel's source (*.cu) includes this header. It is compiled by nvcc
// and, with BATON_EMULATED, by the host compiler, and means the same in both. All PTX of the
// project is in device_code_cuda.h. simt/device_code_emulated.h shows what each instruction does on
// a CPU.
//
// One program can contain both kinds of code. So everything here, and every kernel, is in a
// namespace that tells them apart: a source says `namespace baton::BATON_DEVICE_NAMESPACE { ... }`,
// which is cuda_kernels or emulated_kernels. kernels.h declares the kernels in both.
//
// Rules for kernels, so that they mean the same in both:
//  - Every thread of a block reaches every SyncThreads. Every lane of a warp reaches every
//    collective (all functions below marked "warp"). No return and no divergent branch may stand
//    before them.
//  - Shared memory is declared only by BATON_SHARED and BATON_DYNAMIC_SHARED. If one lane writes
//    there and another lane of its warp reads it, a SyncWarp or SyncThreads must stand between the
//    write and the read, and another one between the read and the next write.
//  - No block waits for another block. Parameters are one trivially copyable struct, passed by
//    value; device pointers in it come from the runtime. Locals are trivially destructible.
//
//   BATON_KERNEL(name, Params, threads) { body }   Defines a kernel and `extern const Kernel name`.
//                                       `params` is in scope; `threads` is the max per block.
//   BATON_DEVICE                        stands before a function that kernels call
//   BATON_SHARED(Type, name, count)     Type name[count] per block, aligned to 16, not initialised
//   BATON_DYNAMIC_SHARED(Type, name)    Type* name, aligned to 128; LaunchShape::shared_bytes bytes
//   BATON_UNROLL, BATON_NO_UNROLL       stands before a loop
//
//   int ThreadIndex(), BlockThreads()   within the block; Lane() and Warp() follow from them
//   int BlockX(), BlockY(), BlockZ(), GridX(), GridY(), GridZ()
//
//   void SyncThreads()                  all threads of the block
//   void SyncWarp()
//   T ShuffleXor(T value, int mask)     warp; T has 4 bytes. The value of lane (own ^ mask)
//   T ShuffleDown(T value, int by)      warp. The value of lane own + by, or of this lane if none
//   T Shuffle(T value, int lane)        warp. The value of `lane`, which may differ between lanes
//   float WarpSum(float), WarpMax(float)  warp. All lanes get the same bits. The sum is the
//                                       butterfly of ShuffleXor 16, 8, 4, 2, 1
//   uint32_t Ballot(bool)               warp. Bit l is the argument of lane l
//
//   void AtomicAdd(T* at, T value)      T is uint32_t or uint64_t, in shared or device memory. It
//                                       returns nothing, so the order of adds has no effect. Any
//                                       other access must be behind a barrier, or in another kernel
//
//   Bf16, Half                          2 bytes; float ToFloat(x); ToBf16(float) and ToHalf(float)
//                                       round to nearest even
//   uint32_t Pack<T>(float low, float high)     T is Bf16 or Half; rounds to nearest even
//   float Exp2(float), Exp(float), Log(float), Sqrt(float), ReciprocalSqrt(float), Sin, Cos, Fma
//   float Mul(float, float)             rounded by itself and never fused with an addition, so that
//                                       two kernels get the same bits
//   double Mul(double, double), Add     each rounded by itself and never fused, like Mul of floats
//     There is no FastExp2 or the like: results should be close to those of a CPU
//   Vector16                            16 bytes, aligned; loaded and stored as a whole
//
//   void CopyAsync16(void* shared, const void* global, bool valid)
//                                       cp.async of 16 bytes, both aligned to 16. If not `valid`,
//                                       writes zeros and does not read `global`
//   void CopyAsyncCommit()              ends a group of the thread's own copies
//   void CopyAsyncWait<N>()             waits until at most N of the thread's latest groups are
//                                       unfinished. Other threads' copies are visible after a
//                                       SyncThreads
//   void LoadMatrix4(uint32_t r[4], const void* row)            warp; ldmatrix.x4. Lane l gives the
//   void LoadMatrix4Transposed(uint32_t r[4], const void* row)  shared address of row l % 8 of 8x8
//                                       matrix l / 8: 16 bytes, aligned to 16
//   void LoadMatrix2(uint32_t r[2], const void* row), LoadMatrix2Transposed   from lanes 0 to 15
//   void Mma<T>(float d[4], const uint32_t a[4], const uint32_t b[2])  warp; d += a * b by
//                                       mma.m16n8k16 of T, which is Bf16 or Half, with float sums
//
// Layout of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16".
// clang-format on

#ifdef BATON_EMULATED
#include "kernels/device/simt/device_code_emulated.h"
#else
#include "kernels/device/code/device_code_cuda.h"
#endif
