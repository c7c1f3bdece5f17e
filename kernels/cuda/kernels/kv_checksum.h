#pragma once

#include <cstdint>

namespace baton {

// Checksums of slices of a KV pool, where the pool is. A slice of n words of 64 bits,
// little-endian, has the sum over i in [0, n) of Mix(word[i] + seed + (i + 1) *
// 0x9E3779B97F4A7C15), modulo 2^64, where Mix is the finisher of splitmix64 (Steele et al., OOPSLA
// 2014): one-to-one, so a change within one word never goes unseen, and of others one in 2^64.
// Integer sums have no order: a slice's parts are summed by blocks that know nothing of each other,
// and added by who reads them.
constexpr int kKvChecksumThreads = 256;
constexpr int kKvChecksumPartBytes = 32 << 10;  // of a slice, for one block; the last one less
constexpr int kKvChecksumSlices = 192;          // of one launch, at most

struct KvChecksumSlice {
  const void* data;  // aligned to 16
  uint64_t seed;
};
// Grid: [slices, parts]. Moves slice_bytes of each slice, and 8 bytes a part.
struct KvChecksumParams {
  uint64_t* sums;       // [slices, parts]; device or pinned memory
  int64_t slice_bytes;  // a multiple of 16
  int32_t parts;        // of a slice: KvChecksumParts(slice_bytes)
  KvChecksumSlice slices[kKvChecksumSlices];
};
static_assert(sizeof(KvChecksumParams) <= 4000, "what a kernel may take");

constexpr int64_t KvChecksumParts(int64_t slice_bytes) {
  return (slice_bytes + kKvChecksumPartBytes - 1) / kKvChecksumPartBytes;
}

// Its plain twin: the same of `words` words in host memory.
uint64_t PlainKvChecksum(const void* data, int64_t words, uint64_t seed);

}  // namespace baton
