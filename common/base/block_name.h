#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace baton {

// The name of a full block of KV: the first 128 bits of a SHA-256 chain over everything that
// decides the bytes of the block (common/kv_cache/block_namer.h). Equal names mean equal KV.
struct BlockName {
  uint64_t high = 0;
  uint64_t low = 0;

  auto operator<=>(const BlockName& other) const = default;

  // A hash functor for containers. Names are uniformly random already.
  struct Hash {
    size_t operator()(const BlockName& name) const { return static_cast<size_t>(name.low); }
  };
};

// Size of a name in a message.
inline constexpr size_t kBlockNameBytes = 16;

// Converts between a number and the number whose bytes in memory have the highest one first.
inline uint64_t HighestByteFirst(uint64_t number) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(number) : number;
}

// Appends the bytes of a name, `high` first, each number with its highest byte first.
inline void AppendBytes(const BlockName& name, std::string* bytes) {
  const uint64_t halves[2] = {HighestByteFirst(name.high), HighestByteFirst(name.low)};
  bytes->append(reinterpret_cast<const char*>(halves), sizeof halves);
}

// Returns the name whose bytes begin at `bytes`.
inline BlockName BlockNameAt(const char* bytes) {
  uint64_t halves[2];
  std::memcpy(halves, bytes, sizeof halves);
  return {HighestByteFirst(halves[0]), HighestByteFirst(halves[1])};
}

}  // namespace baton
