#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

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

}  // namespace baton
