#pragma once

#include <array>
#include <cstdint>

namespace baton {

// Philox4x32-10, a counter-based generator: the random numbers are a function of `counter` and
// `key`, so no state has to move from worker to worker. Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011.
inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// UniformBitsAt returns a random integer, uniform in [0, 2^kUniformBits). It is used to sample the
// token at `position` of answer `index` to a request with this seed.
inline constexpr int kUniformBits = 53;
inline uint64_t UniformBitsAt(uint64_t seed, uint64_t position, uint32_t index = 0) {
  const auto random =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), index, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (uint64_t{random[0]} << 21) ^ (random[1] >> 11);
}

// Returns UniformBitsAt scaled to [0, 1).
inline double UniformAt(uint64_t seed, uint64_t position, uint32_t index = 0) {
  return static_cast<double>(UniformBitsAt(seed, position, index)) * 0x1p-53;
}

}  // namespace baton
