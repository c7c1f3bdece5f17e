#pragma once

#include <cstddef>
#include <cstdint>

#include <xxhash.h>

#include "absl/strings/string_view.h"

namespace baton {

// XXH3, 64 bits: checksums of KV slices, fingerprints, block hashes. The same on every machine. Not
// a defence against somebody who may choose the bytes.
inline uint64_t Hash64(const void* data, size_t bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}
inline uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0) {
  return Hash64(bytes.data(), bytes.size(), seed);
}

}  // namespace baton
