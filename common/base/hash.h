#pragma once

#include <cstddef>
#include <cstdint>

#include <xxhash.h>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the 64-bit XXH3 hash, for checksums of KV slices, fingerprints and block hashes. The hash
// of the same bytes is the same on every machine. An attacker who chooses the bytes can make
// collisions.
inline uint64_t Hash64(const void* data, size_t bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}
inline uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0) {
  return Hash64(bytes.data(), bytes.size(), seed);
}

}  // namespace baton
