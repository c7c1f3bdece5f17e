#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/types.h"
#include "kernels/kv_layout.h"

namespace baton {

// What lies beside a KV pool for its readers, in memory of its own:
//   pattern      [kPatternBytes]         a function of the owner's epoch: proves the link
//   generations  [blocks]          u64   counted by the owner's block pool
//   checksums    [blocks][layers]  u64   of each slice, by KvChecksums, before it is published
struct KvMeta {
  static constexpr size_t kPatternBytes = 1 << 20;

  uint64_t blocks = 0;
  int layers = 0;

  size_t GenerationOffset(BlockId block) const { return kPatternBytes + block * sizeof(uint64_t); }
  size_t ChecksumOffset(BlockId block, int layer) const {
    return GenerationOffset(blocks) + (uint64_t{1} * block * layers + layer) * sizeof(uint64_t);
  }
  size_t Bytes() const { return ChecksumOffset(blocks, 0); }

  // Writes kPatternBytes for `epoch`.
  static void WritePattern(WorkerEpoch epoch, std::byte* to);
  // Whether `bytes` (a multiple of 8) at `offset` (one too) are what WritePattern puts there.
  static bool CheckPattern(WorkerEpoch epoch, size_t offset, const std::byte* data, size_t bytes);
};

// What the checksum of one layer of one block is seeded with: whose and which it is, so that right
// bytes from the wrong place are wrong too.
uint64_t KvSeed(WorkerEpoch owner, BlockId block, uint64_t generation, int layer);

// Checksum of the layout.LayerBytes() at `data`, in host memory.
uint64_t KvChecksum(const KvLayout& layout, uint64_t seed, const std::byte* data);

}  // namespace baton
