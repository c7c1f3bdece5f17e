#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/types.h"
#include "kernels/backend/kv_layout.h"

namespace baton {

// Behind a KV pool's last block, from PatternOffset on, its readers find kPatternBytes that are a
// function of the owner's epoch: they prove the link by the way that KV will take. Beside the pool,
// in host memory of its own:
//   generations  [blocks]          u64   counted by the owner's block pool
//   checksums    [blocks][layers]  u64   of each slice, by KvChecksums, before it is published
struct KvMeta {
  static constexpr size_t kPatternBytes = 1 << 20;

  uint64_t blocks = 0;
  int layers = 0;

  // Of a pool, and how large it is with the pattern.
  static size_t PatternOffset(const KvLayout& layout, uint64_t blocks) {
    return (blocks * layout.BlockBytes() + 4095) / 4096 * 4096;
  }
  static size_t PoolBytes(const KvLayout& layout, uint64_t blocks) {
    return PatternOffset(layout, blocks) + kPatternBytes;
  }

  size_t GenerationOffset(BlockId block) const { return block * sizeof(uint64_t); }
  size_t ChecksumOffset(BlockId block, int layer) const {
    return blocks * sizeof(uint64_t) + (uint64_t{1} * block * layers + layer) * sizeof(uint64_t);
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
