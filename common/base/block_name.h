#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
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

// Appends the bytes of a name, `high` first, each number with its highest byte first.
inline void AppendBytes(const BlockName& name, std::string* bytes) {
  for (const uint64_t half : {name.high, name.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes->push_back(static_cast<char>(half >> shift));
  }
}

// Returns the name whose bytes begin at `bytes`.
inline BlockName BlockNameAt(const char* bytes) {
  uint64_t halves[2] = {};
  for (size_t i = 0; i < kBlockNameBytes; ++i) {
    halves[i / 8] = halves[i / 8] << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return {halves[0], halves[1]};
}

}  // namespace baton
