#pragma once

// Implements device_code.h for the host compiler. Every thread is a fiber (thread_block.h).

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/float_formats.h"
#include "kernels/device/simt/simt_entry.h"

#ifdef BATON_CHECKED
#define BATON_SIMT_CHECKED true
// The compiler does not treat calls of memcpy, memmove and memset as loads and stores. So these
// calls go to functions with other names, which check the access and then copy or fill
// (checker_calls.cc).
extern "C" {
void* memcpy(void*, const void*, size_t) noexcept __asm__("baton_simt_memcpy");
void* memmove(void*, const void*, size_t) noexcept __asm__("baton_simt_memmove");
void* memset(void*, int, size_t) noexcept __asm__("baton_simt_memset");
}
#else
#define BATON_SIMT_CHECKED false
#endif

#define BATON_KERNEL(name, Params, threads)                                    \
  static void name##_thread(const Params& params);                             \
  static void name##_body(const void* params) {                                \
    name##_thread(*static_cast<const Params*>(params));                        \
  }                                                                            \
  static_assert((threads) % 32 == 0 && (threads) <= 1024);                     \
  static const ::baton::simt::SimtEntry name##_entry = {&name##_body, threads, \
                                                        BATON_SIMT_CHECKED};   \
  extern const Kernel name;                                                    \
  const Kernel name = {#name, &name##_entry, sizeof(Params)};                  \
  static void name##_thread([[maybe_unused]] const Params& params)
#define BATON_DEVICE_NAMESPACE emulated_kernels
#ifdef BATON_CHECKED  // Inlined, so that messages name the kernel's line.
#define BATON_DEVICE inline __attribute__((always_inline))
// In kernels without checks, the compiler may share one copy of each function instead of inlining
// it, so that programs stay small.
#else
#define BATON_DEVICE inline
#endif
#define BATON_SHARED(Type, name, count)                                                  \
  static_assert(std::is_trivially_default_constructible_v<Type> && alignof(Type) <= 16); \
  static const char name##_key = 0;                                                      \
  Type(&name)[count] = *static_cast<Type(*)[count]>(::baton::simt::SharedArray(          \
      &name##_key, #name, sizeof(Type[count]), ::baton::simt::Place::Here()))
#define BATON_DYNAMIC_SHARED(Type, name) \
  Type* const name = static_cast<Type*>(::baton::simt::DynamicShared())
#define BATON_UNROLL
#define BATON_NO_UNROLL

namespace baton::BATON_DEVICE_NAMESPACE {

struct Bf16 {
  uint16_t bits;
};

struct Half {
  uint16_t bits;
};

// Copying a Vector16 reports misaligned addresses. Plain loads of words would not notice them.
struct alignas(16) Vector16 {
  uint32_t word[4];

  Vector16() = default;
  Vector16(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) : word{w0, w1, w2, w3} {}
  Vector16(const Vector16& from) {
    CheckAligned(&from);
    SetWords(from);
  }
  Vector16& operator=(const Vector16& from) {
    CheckAligned(&from);
    CheckAligned(this);
    SetWords(from);
    return *this;
  }

 private:
  BATON_DEVICE static void CheckAligned(const Vector16* at) {
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) simt::Misaligned16(at);
  }
  BATON_DEVICE void SetWords(const Vector16& from) {
    for (int i = 0; i < 4; ++i) word[i] = from.word[i];
  }
};

BATON_DEVICE int ThreadIndex() { return simt::current.thread; }
BATON_DEVICE int BlockThreads() { return simt::current.threads; }
BATON_DEVICE int Lane() { return simt::current.thread % 32; }
BATON_DEVICE int Warp() { return simt::current.thread / 32; }
BATON_DEVICE int BlockX() { return simt::current.block_x; }
BATON_DEVICE int BlockY() { return simt::current.block_y; }
BATON_DEVICE int BlockZ() { return simt::current.block_z; }
BATON_DEVICE int GridX() { return simt::current.grid_x; }
BATON_DEVICE int GridY() { return simt::current.grid_y; }
BATON_DEVICE int GridZ() { return simt::current.grid_z; }

BATON_DEVICE void SyncThreads(simt::Place place = simt::Place::Here()) { simt::SyncThreads(place); }
BATON_DEVICE void SyncWarp(simt::Place place = simt::Place::Here()) { simt::SyncWarp(place); }

template <typename T>
BATON_DEVICE T GatherAs(const char* operation, T value, int from, simt::Place place) {
  static_assert(sizeof(T) == 4 && std::is_trivially_copyable_v<T>);
  return std::bit_cast<T>(simt::Gather(operation, std::bit_cast<uint32_t>(value), from, place));
}
template <typename T>
BATON_DEVICE T ShuffleXor(T value, int mask, simt::Place place = simt::Place::Here()) {
  return GatherAs("ShuffleXor", value, Lane() ^ mask, place);
}
template <typename T>
BATON_DEVICE T ShuffleDown(T value, int by, simt::Place place = simt::Place::Here()) {
  const int from = Lane() + (by & 31);  // the instruction uses the low 5 bits of `by`
  return GatherAs("ShuffleDown", value, from < 32 ? from : Lane(), place);
}
template <typename T>
BATON_DEVICE T Shuffle(T value, int lane, simt::Place place = simt::Place::Here()) {
  return GatherAs("Shuffle", value, lane, place);
}
BATON_DEVICE float WarpSum(float value, simt::Place place = simt::Place::Here()) {
  return simt::WarpSum(value, place);
}
BATON_DEVICE float WarpMax(float value, simt::Place place = simt::Place::Here()) {
  return simt::WarpMax(value, place);
}
BATON_DEVICE uint32_t Ballot(bool predicate, simt::Place place = simt::Place::Here()) {
  return simt::Ballot(predicate, place);
}

BATON_DEVICE void AtomicAdd(uint32_t* at, uint32_t value) { simt::AtomicAdd(at, value); }
BATON_DEVICE void AtomicAdd(uint64_t* at, uint64_t value) { simt::AtomicAdd(at, value); }

BATON_DEVICE float ToFloat(float x) { return x; }
BATON_DEVICE float ToFloat(Bf16 x) { return simt::Bf16ToFloat(x.bits); }
BATON_DEVICE float ToFloat(Half x) { return simt::HalfToFloat(x.bits); }
BATON_DEVICE Bf16 ToBf16(float x) { return {simt::FloatToBf16(x)}; }
BATON_DEVICE Half ToHalf(float x) { return {simt::FloatToHalf(x)}; }
template <typename T>
BATON_DEVICE uint32_t Pack(float low, float high) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, Half>);
  if constexpr (std::is_same_v<T, Half>) {
    return simt::FloatToHalf(low) | uint32_t{simt::FloatToHalf(high)} << 16;
  } else {
    return simt::FloatToBf16(low) | uint32_t{simt::FloatToBf16(high)} << 16;
  }
}

BATON_DEVICE float Exp2(float x) { return std::exp2(x); }
BATON_DEVICE float Exp(float x) { return std::exp(x); }
BATON_DEVICE float Log(float x) { return std::log(x); }
BATON_DEVICE float Sqrt(float x) { return std::sqrt(x); }
BATON_DEVICE float ReciprocalSqrt(float x) { return 1.0f / std::sqrt(x); }
BATON_DEVICE float Sin(float x) { return std::sin(x); }
BATON_DEVICE float Cos(float x) { return std::cos(x); }
BATON_DEVICE float Fma(float a, float b, float c) { return std::fma(a, b, c); }
BATON_DEVICE float Mul(float a, float b) { return a * b; }
BATON_DEVICE double Mul(double a, double b) { return a * b; }
BATON_DEVICE double Add(double a, double b) { return a + b; }

BATON_DEVICE void CopyAsync16(void* shared, const void* global, bool valid,
                              simt::Place place = simt::Place::Here()) {
  simt::CopyAsync16(shared, global, valid, place);
}
BATON_DEVICE void CopyAsyncCommit() { simt::CopyAsyncCommit(); }
template <int N>
BATON_DEVICE void CopyAsyncWait() {
  static_assert(N >= 0);
  simt::CopyAsyncWait(N);
}

BATON_DEVICE void LoadMatrix4(uint32_t r[4], const void* row,
                              simt::Place place = simt::Place::Here()) {
  simt::LoadMatrix4(r, row, false, place);
}
BATON_DEVICE void LoadMatrix4Transposed(uint32_t r[4], const void* row,
                                        simt::Place place = simt::Place::Here()) {
  simt::LoadMatrix4(r, row, true, place);
}
BATON_DEVICE void LoadMatrix2(uint32_t r[2], const void* row,
                              simt::Place place = simt::Place::Here()) {
  simt::LoadMatrix2(r, row, false, place);
}
BATON_DEVICE void LoadMatrix2Transposed(uint32_t r[2], const void* row,
                                        simt::Place place = simt::Place::Here()) {
  simt::LoadMatrix2(r, row, true, place);
}
template <typename T>
BATON_DEVICE void Mma(float d[4], const uint32_t a[4], const uint32_t b[2],
                      simt::Place place = simt::Place::Here()) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, Half>);
  simt::Mma(d, a, b, std::is_same_v<T, Half>, place);
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
