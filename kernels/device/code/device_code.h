#pragma once

// clang-format off
// What kernels are written with. A kernel's source (*.cu) includes this and is compiled by nvcc, or
// with BATON_EMULATED by the host compiler, and means the same in both. All PTX of the project is
// in device_code_cuda.h; what each of it does on a CPU, in simt/device_code_emulated.h.
//
// Both are linked into one program, so everything here, and every kernel, is in a namespace that
// tells them apart: a source says `namespace baton::BATON_DEVICE_NAMESPACE { ... }`, which is
// cuda_kernels or emulated_kernels, and kernels.h declares what is in them.
//
// Rules that kernels keep so that they mean the same in both:
//  - Every thread of a block reaches every SyncThreads, every lane of a warp every collective (all
//    functions below that say "warp"): no return and no divergent branch before one.
//  - Shared memory is declared by BATON_SHARED and BATON_DYNAMIC_SHARED alone. What one lane writes
//    there and another of its warp reads has a SyncWarp or SyncThreads between, and the next write
//    too.
//  - No waiting for another block. Parameters are one trivially copyable struct, by value; device
//    pointers in it come from the runtime. Locals are trivially destructible.
//
//   BATON_KERNEL(name, Params, threads) { body }   `params` is in scope; blocks of at most so many
//                                       threads. Defines `extern const Kernel name`.
//   BATON_DEVICE                        before a function that kernels call
//   BATON_SHARED(Type, name, count)     Type name[count] of the block, aligned to 16, not initialised
//   BATON_DYNAMIC_SHARED(Type, name)    Type* name, aligned to 128: LaunchShape::shared_bytes
//   BATON_UNROLL, BATON_NO_UNROLL       before a loop
//
//   int ThreadIndex(), BlockThreads()   of the block; Lane() and Warp() follow from them
//   int BlockX(), BlockY(), BlockZ(), GridX(), GridY(), GridZ()
//
//   void SyncThreads()                  all of the block
//   void SyncWarp()
//   T ShuffleXor(T value, int mask)     warp; T of 4 bytes. From lane (own ^ mask)
//   T ShuffleDown(T value, int by)      warp. From lane own + by; own value where there is none
//   T Shuffle(T value, int lane)        warp. From that lane, the same one for all or not
//   float WarpSum(float), WarpMax(float)  warp. The same bits in every lane; the sum by the
//                                       butterfly of ShuffleXor 16, 8, 4, 2, 1
//   uint32_t Ballot(bool)               warp. Bit l is lane l's
//
//   void AtomicAdd(T* at, T value)      T uint32_t or uint64_t, in shared or device memory. Nothing is
//                                       returned, so the order of adds is seen by nobody; any other
//                                       access has a barrier between, or is another kernel's
//
//   Bf16, Half                          2 bytes; float ToFloat(x); ToBf16(float), ToHalf(float) to
//                                       nearest even
//   uint32_t Pack<T>(float low, float high)     T Bf16 or Half, to nearest even
//   float Exp2(float), Exp(float), Log(float), Sqrt(float), ReciprocalSqrt(float), Sin, Cos, Fma
//   float Mul(float, float)             rounded by itself: never half of a fused multiply-add, so that
//                                       two kernels get the same bits
//   double Mul(double, double), Add     the same
//     FastExp2 and the like are not there: results are to be near those of a CPU
//   Vector16                            16 bytes, aligned: loaded and stored at once
//
//   void CopyAsync16(void* shared, const void* global, bool valid)
//                                       cp.async of 16 bytes, both aligned to 16; zeros where not
//                                       `valid`, and `global` is then not read
//   void CopyAsyncCommit()              ends a group of the thread's own copies
//   void CopyAsyncWait<N>()             until at most N of the thread's latest groups are under
//                                       way; others' copies are seen after a SyncThreads
//   void LoadMatrix4(uint32_t r[4], const void* row)            warp; ldmatrix.x4: lane l gives the
//   void LoadMatrix4Transposed(uint32_t r[4], const void* row)  shared address of row l % 8 of 8x8
//                                       matrix l / 8, 16 bytes, aligned to 16
//   void LoadMatrix2(uint32_t r[2], const void* row), LoadMatrix2Transposed   lanes 0 to 15
//   void Mma<T>(float d[4], const uint32_t a[4], const uint32_t b[2])  warp; d += a * b by
//                                       mma.m16n8k16 of T, Bf16 or Half, with float sums
//
// Layout of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16".
// clang-format on

#ifdef BATON_EMULATED
#include "kernels/device/simt/device_code_emulated.h"
#else
#include "kernels/device/code/device_code_cuda.h"
#endif
