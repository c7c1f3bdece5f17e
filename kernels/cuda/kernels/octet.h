#pragma once

// An octet is eight neighbouring elements of a row, which one thread takes at a time. An aligned
// row is accessed 16 bytes at a time. A row's last octet may be shorter. Included by kernels only.

#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

constexpr int kOctet = 8;

BATON_DEVICE int Octets(int elements) { return (elements + kOctet - 1) / kOctet; }

BATON_DEVICE void Put(Bf16* to, float value) { *to = ToBf16(value); }
BATON_DEVICE void Put(Half* to, float value) { *to = ToHalf(value); }
BATON_DEVICE void Put(float* to, float value) { *to = value; }

template <typename T>
BATON_DEVICE bool IsWholeVector(const T* at, int count) {
  return count >= kOctet && reinterpret_cast<uintptr_t>(at) % sizeof(Vector16) == 0;
}

// Loads the first `count` elements of an octet, at most eight, as floats. The others become zeros,
// and their memory is not read.
template <typename T>
BATON_DEVICE void LoadOctet(const T* from, int count, float out[kOctet]) {
  constexpr int kVectors = kOctet * sizeof(T) / sizeof(Vector16);
  if (IsWholeVector(from, count)) {
    union {
      Vector16 vectors[kVectors];
      T elements[kOctet];
    };
    BATON_UNROLL
    for (int i = 0; i < kVectors; ++i) vectors[i] = reinterpret_cast<const Vector16*>(from)[i];
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) out[i] = ToFloat(elements[i]);
  } else {
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) out[i] = i < count ? ToFloat(from[i]) : 0.0f;
  }
}

// Stores the first `count` elements of an octet, at most eight, rounded to T. Memory after them is
// not changed.
template <typename T>
BATON_DEVICE void StoreOctet(T* to, int count, const float in[kOctet]) {
  constexpr int kVectors = kOctet * sizeof(T) / sizeof(Vector16);
  if (IsWholeVector(to, count)) {
    union {
      Vector16 vectors[kVectors];
      T elements[kOctet];
    };
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) Put(&elements[i], in[i]);
    BATON_UNROLL
    for (int i = 0; i < kVectors; ++i) reinterpret_cast<Vector16*>(to)[i] = vectors[i];
  } else {
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) Put(&to[i], in[i]);
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
