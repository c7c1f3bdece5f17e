#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/numeric/int128.h"
#include "common/base/block_name.h"

namespace baton {

// Spreads names over the buckets of a hash table. An attacker who does not know the secret `key`
// can't make prompts whose names collide.
class NameHash {
 public:
  explicit NameHash(uint64_t key) : key_(key) {}

  // Returns the bucket of a name, from 0 to `buckets` - 1.
  size_t BucketOf(const BlockName& name, size_t buckets) const {
    const uint64_t low = name.low ^ key_ ^ 0x9e3779b97f4a7c15;
    const uint64_t high = name.high ^ std::rotl(key_, 32) ^ 0xc2b2ae3d27d4eb4f;
    const absl::uint128 mixed = absl::uint128(low) * high;
    const uint64_t hash = absl::Uint128High64(mixed) ^ absl::Uint128Low64(mixed);
    return absl::Uint128High64(absl::uint128(hash) * buckets);
  }

 private:
  const uint64_t key_;
};

}  // namespace baton
