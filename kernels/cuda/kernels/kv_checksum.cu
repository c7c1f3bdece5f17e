#include "kernels/cuda/kernels/kv_checksum.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

constexpr int kWarps = kKvChecksumThreads / 32;
constexpr int kVectorBytes = static_cast<int>(sizeof(Vector16));
constexpr int kVectors = kKvChecksumPartBytes / (kKvChecksumThreads * kVectorBytes);
static_assert(kVectors * kKvChecksumThreads * kVectorBytes == kKvChecksumPartBytes);

BATON_DEVICE uint64_t Mix(uint64_t word, uint64_t seed, uint64_t index) {
  uint64_t z = word + seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

BATON_DEVICE uint64_t JoinedWords(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace

// A thread block sums one part of one slice, kKvChecksumPartBytes bytes. Each thread makes 8 loads
// of 16 bytes; in each of them, neighbouring threads load neighbouring bytes. Every byte is read
// once.
BATON_KERNEL(kv_checksum, KvChecksumParams, kKvChecksumThreads) {
  BATON_SHARED(uint64_t, sums, kWarps);
  const KvChecksumSlice slice = params.slices[BlockX()];
  const int64_t begin = static_cast<int64_t>(BlockY()) * kKvChecksumPartBytes;
  uint64_t sum = 0;
  BATON_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t at = begin + (i * kKvChecksumThreads + ThreadIndex()) * kVectorBytes;
    if (at < params.slice_bytes) {
      const Vector16 v =
          *reinterpret_cast<const Vector16*>(static_cast<const unsigned char*>(slice.data) + at);
      sum += Mix(JoinedWords(v.word[0], v.word[1]), slice.seed, at / 8);
      sum += Mix(JoinedWords(v.word[2], v.word[3]), slice.seed, at / 8 + 1);
    }
  }
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t low = ShuffleXor(static_cast<uint32_t>(sum), mask);
    const uint32_t high = ShuffleXor(static_cast<uint32_t>(sum >> 32), mask);
    sum += JoinedWords(low, high);
  }
  if (Lane() == 0) sums[Warp()] = sum;
  SyncThreads();
  if (ThreadIndex() == 0) {
    uint64_t all = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      all += sums[warp];
    }
    params.sums[static_cast<int64_t>(BlockX()) * params.parts + BlockY()] = all;
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
