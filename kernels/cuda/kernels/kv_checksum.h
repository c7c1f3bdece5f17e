#pragma once

#include <cstdint>

namespace baton {

// Checksums of slices of a KV pool, computed on the device that holds the pool. A slice is n
// little-endian words of 64 bits. Its checksum is the sum over i in [0, n) of Mix(word[i] + seed +
// (i + 1) * 0x9E3779B97F4A7C15), modulo 2^64. Mix is the finisher of splitmix64 (Steele et al.,
// OOPSLA 2014). Mix is one-to-one, so a change within one word is always detected; of other
// changes, one in 2^64 is missed. Integer sums do not depend on their order: thread blocks sum the
// parts of a slice independently, and the reader adds the parts.
constexpr int kKvChecksumThreads = 256;
// Bytes of a slice that one thread block sums; the last part of a slice may be shorter.
constexpr int kKvChecksumPartBytes = 32 << 10;
constexpr int kKvChecksumSlices = 192;  // max slices of one launch

struct KvChecksumSlice {
  const void* data;  // aligned to 16 bytes
  uint64_t seed;
};
// Parameters of the kernel that computes checksums. Its grid is [slices, parts]. The kernel reads
// slice_bytes per slice and writes 8 bytes per part.
struct KvChecksumParams {
  uint64_t* sums;       // [slices, parts]; device or pinned memory
  int64_t slice_bytes;  // a multiple of 16
  int32_t parts;        // parts of a slice: KvChecksumParts(slice_bytes)
  KvChecksumSlice slices[kKvChecksumSlices];
};
static_assert(sizeof(KvChecksumParams) <= 4000, "what a kernel may take");

constexpr int64_t KvChecksumParts(int64_t slice_bytes) {
  return (slice_bytes + kKvChecksumPartBytes - 1) / kKvChecksumPartBytes;
}

// Reference implementation: the checksum of `words` words in host memory.
uint64_t PlainKvChecksum(const void* data, int64_t words, uint64_t seed);

}  // namespace baton
