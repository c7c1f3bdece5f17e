#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/types.h"
#include "kernels/backend/kv_layout.h"

namespace baton {

// Layout of the memory through which readers check a KV pool.
// The pool ends, from PatternOffset on, with kPatternBytes of a test pattern that depends only on
// the owner's epoch. Reading the pattern proves that the link works, over the path that the KV will
// take.
// Beside the pool, in separate host memory, lie:
//   generations  [blocks]          u64   counted by the owner's block pool
//   checksums    [blocks][layers]  u64   one per slice, written before the slice is published
struct KvMeta {
  static constexpr size_t kPatternBytes = 1 << 20;

  uint64_t blocks = 0;
  int layers = 0;

  // Offset of the test pattern in a pool, and size of the pool with the pattern, in bytes.
  static size_t PatternOffset(const KvLayout& layout, uint64_t blocks) {
    return (blocks * layout.BlockBytes() + 4095) / 4096 * 4096;
  }
  static size_t PoolBytes(const KvLayout& layout, uint64_t blocks,
                          size_t pattern_bytes = kPatternBytes) {
    return PatternOffset(layout, blocks) + pattern_bytes;
  }

  size_t GenerationOffset(BlockId block) const { return block * sizeof(uint64_t); }
  size_t ChecksumOffset(BlockId block, int layer) const {
    return blocks * sizeof(uint64_t) + (uint64_t{1} * block * layers + layer) * sizeof(uint64_t);
  }
  size_t Bytes() const { return ChecksumOffset(blocks, 0); }

  // Writes the test pattern for a worker with this epoch to `to`. `bytes` must be a multiple of 8.
  static void WritePattern(WorkerEpoch epoch, std::byte* to, size_t bytes);
  // Returns true if the `bytes` bytes at `data` equal the test pattern for `epoch` from byte
  // `offset` of the pattern on. `offset` and `bytes` must be multiples of 8.
  static bool CheckPattern(WorkerEpoch epoch, size_t offset, const std::byte* data, size_t bytes);
};

// Seed for the checksum of one layer of one block. All four arguments change it. So bytes that
// belong to another owner, block or layer, or to another use of the block, give a wrong checksum.
uint64_t KvSeed(WorkerEpoch owner, BlockId block, uint64_t generation, int layer);

// Returns the checksum of the layout.LayerBytes() bytes at `data`, which lies in host memory.
uint64_t KvChecksum(const KvLayout& layout, uint64_t seed, const std::byte* data);

}  // namespace baton
