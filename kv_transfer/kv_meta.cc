#include "kv_transfer/kv_meta.h"

#include <cstring>

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#endif

#include "common/base/hash.h"

namespace baton {
namespace {

// Returns word `index` of the test pattern of the worker with this epoch. Uses splitmix64 (Steele
// et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t PatternWord(WorkerEpoch epoch, uint64_t index) {
  uint64_t z = epoch + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Returns the same value as Hash64, but uses the machine's widest vector instructions: every byte
// of KV is hashed twice, by its owner and by its reader.
uint64_t HashSlice(const std::byte* data, size_t bytes, uint64_t seed) {
#if defined(__x86_64__)
  return XXH3_64bits_withSeed_dispatch(data, bytes, seed);
#else
  return Hash64(data, bytes, seed);
#endif
}

}  // namespace

void KvMeta::WritePattern(WorkerEpoch epoch, std::byte* to, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
    const uint64_t word = PatternWord(epoch, i);
    std::memcpy(to + i * sizeof(word), &word, sizeof(word));
  }
}

bool KvMeta::CheckPattern(WorkerEpoch epoch, size_t offset, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
    const uint64_t word = PatternWord(epoch, offset / sizeof(word) + i);
    if (std::memcmp(data + i * sizeof(word), &word, sizeof(word)) != 0) return false;
  }
  return true;
}

uint64_t KvSeed(WorkerEpoch owner, BlockId block, uint64_t generation, int layer) {
  const uint64_t where[] = {owner, static_cast<uint64_t>(block), generation,
                            static_cast<uint64_t>(layer)};
  return Hash64(where, sizeof(where));
}

uint64_t KvChecksum(const KvLayout& layout, uint64_t seed, const std::byte* data) {
  return HashSlice(data, layout.LayerBytes(), seed);
}

}  // namespace baton
