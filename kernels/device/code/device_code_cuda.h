#pragma once

// Implements device_code.h for nvcc, for sm_80 and newer.

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/runtime/kernel.h"

// A profiler shows the function as the kernel's name with a suffix. The launch bounds ask for only
// one block per multiprocessor. If they gave no number of blocks, ptxas would limit the registers
// so that four blocks fit, and would spill the rest.
#define BATON_KERNEL(name, Params, threads)                                                   \
  static __global__ void __launch_bounds__(threads, 1)                                        \
      name##_device(const __grid_constant__ Params);                                          \
  extern const Kernel name;                                                                   \
  const Kernel name = {#name, reinterpret_cast<const void*>(&name##_device), sizeof(Params)}; \
  static __global__ void __launch_bounds__(threads, 1)                                        \
      name##_device(const __grid_constant__ Params params)
#define BATON_DEVICE_NAMESPACE cuda_kernels
#define BATON_DEVICE __device__ __forceinline__
#define BATON_SHARED(Type, name, count) __shared__ __align__(16) Type name[count]
#define BATON_DYNAMIC_SHARED(Type, name)                            \
  extern __shared__ __align__(128) unsigned char dynamic_shared_[]; \
  Type* const name = reinterpret_cast<Type*>(dynamic_shared_)
#define BATON_UNROLL _Pragma("unroll")
#define BATON_NO_UNROLL _Pragma("unroll 1")

namespace baton::BATON_DEVICE_NAMESPACE {

using Bf16 = __nv_bfloat16;
using Half = __half;

struct alignas(16) Vector16 {
  uint32_t word[4];
};

BATON_DEVICE int ThreadIndex() { return threadIdx.x; }
BATON_DEVICE int BlockThreads() { return blockDim.x; }
BATON_DEVICE int Lane() { return threadIdx.x % 32; }
BATON_DEVICE int Warp() { return threadIdx.x / 32; }
BATON_DEVICE int BlockX() { return blockIdx.x; }
BATON_DEVICE int BlockY() { return blockIdx.y; }
BATON_DEVICE int BlockZ() { return blockIdx.z; }
BATON_DEVICE int GridX() { return gridDim.x; }
BATON_DEVICE int GridY() { return gridDim.y; }
BATON_DEVICE int GridZ() { return gridDim.z; }

BATON_DEVICE void SyncThreads() { __syncthreads(); }
BATON_DEVICE void SyncWarp() { __syncwarp(); }

template <typename T>
BATON_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
BATON_DEVICE T ShuffleDown(T value, int by) {
  return __shfl_down_sync(0xffffffffu, value, by);
}
template <typename T>
BATON_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
BATON_DEVICE float WarpSum(float value) {
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}
BATON_DEVICE float WarpMax(float value) {
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, ShuffleXor(value, mask));
  return value;
}
BATON_DEVICE uint32_t Ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

BATON_DEVICE void AtomicAdd(uint32_t* at, uint32_t value) { atomicAdd(at, value); }
BATON_DEVICE void AtomicAdd(uint64_t* at, uint64_t value) {
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  atomicAdd(reinterpret_cast<unsigned long long*>(at), value);
}

BATON_DEVICE float ToFloat(float x) { return x; }
BATON_DEVICE float ToFloat(Bf16 x) { return __bfloat162float(x); }
BATON_DEVICE float ToFloat(Half x) { return __half2float(x); }
BATON_DEVICE Bf16 ToBf16(float x) { return __float2bfloat16_rn(x); }
BATON_DEVICE Half ToHalf(float x) { return __float2half_rn(x); }
template <typename T>
BATON_DEVICE uint32_t Pack(float low, float high) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, Half>);
  if constexpr (std::is_same_v<T, Half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

BATON_DEVICE float Exp2(float x) { return exp2f(x); }
BATON_DEVICE float Exp(float x) { return expf(x); }
BATON_DEVICE float Log(float x) { return logf(x); }
BATON_DEVICE float Sqrt(float x) { return sqrtf(x); }
BATON_DEVICE float ReciprocalSqrt(float x) { return rsqrtf(x); }
BATON_DEVICE float Sin(float x) { return sinf(x); }
BATON_DEVICE float Cos(float x) { return cosf(x); }
BATON_DEVICE float Fma(float a, float b, float c) { return fmaf(a, b, c); }
BATON_DEVICE float Mul(float a, float b) { return __fmul_rn(a, b); }
BATON_DEVICE double Mul(double a, double b) { return __dmul_rn(a, b); }
BATON_DEVICE double Add(double a, double b) { return __dadd_rn(a, b); }

BATON_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

BATON_DEVICE void CopyAsync16(void* shared, const void* global, bool valid) {
  // cp.async always writes 16 bytes. Its last operand says how many of them come from `global`; the
  // rest are zeros.
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
BATON_DEVICE void CopyAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
BATON_DEVICE void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

BATON_DEVICE void LoadMatrix4(uint32_t r[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
BATON_DEVICE void LoadMatrix4Transposed(uint32_t r[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
BATON_DEVICE void LoadMatrix2(uint32_t r[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(row))
               : "memory");
}
BATON_DEVICE void LoadMatrix2Transposed(uint32_t r[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(row))
               : "memory");
}
template <typename T>
BATON_DEVICE void Mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, Half>);
  if constexpr (std::is_same_v<T, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
