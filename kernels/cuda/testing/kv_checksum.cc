#include "kernels/cuda/kernels/kv_checksum.h"

#include <cstring>

namespace baton {

uint64_t PlainKvChecksum(const void* data, int64_t words, uint64_t seed) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(data) + i * sizeof(word), sizeof(word));
    uint64_t z = word + seed + static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    sum += z ^ (z >> 31);
  }
  return sum;
}

}  // namespace baton
