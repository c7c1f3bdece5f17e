#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace baton {

// Lends out this worker's KV blocks. Reference-counted: a block that several sequences share is
// freed when its last user releases it. Loop thread only.
//
// Every block has a generation that peers can read. It goes up by one when the block is handed out
// and again when the block is freed, so it is odd exactly while the block is in use. Together with
// the data it forms a sequence lock (Lameter 2005; Boehm, MSPC 2012). A reader that reads the
// generation, then the data, then the same generation again, has read the data written by the
// holder of that generation.
class BlockPool {
 public:
  enum class Reuse {
    // takes the shortest run of free blocks that is long enough, because the KV of neighbouring
    // blocks is sent in fewer transfers
    kContiguous,
    kLastFreed,  // for tests: last in, first out, which shows late writes to freed blocks soonest
  };

  // Creates a pool of blocks 0 .. blocks-1, all free. `generations` holds a counter per block,
  // which is even while the block is free. Aborts unless all are even at the start (zeroed memory
  // will do). The caller owns the counters, which must outlive the pool; any thread may read them.
  // Counters of blocks that are in use when the pool is destroyed stay odd. If `generations` is
  // null, the pool keeps its own.
  explicit BlockPool(int blocks, std::atomic<uint64_t>* generations = nullptr,
                     Reuse reuse = Reuse::kContiguous);

  // Takes `n` blocks, one reference each, in any order. Returns ResourceExhausted, and takes none,
  // if fewer are free.
  absl::StatusOr<std::vector<BlockId>> Take(int n);

  // Adds a reference to a block in use. Aborts if the block is free.
  void AddRef(BlockId block);

  // Drops one reference. Aborts on a free block: going on would let two sequences write to the same
  // memory, and the wrong tokens that follow are far harder to trace than a crash.
  void Release(BlockId block);
  void Release(const std::vector<BlockId>& blocks);

  int free_blocks() const { return free_blocks_; }
  int total_blocks() const { return static_cast<int>(references_.size()); }
  // Returns the number of references; 0 for a free block.
  int references(BlockId block) const { return references_[Checked(block)]; }
  uint64_t generation(BlockId block) const;

 private:
  size_t Checked(BlockId block) const;
  void Lend(BlockId block, std::vector<BlockId>* out);
  void AddRun(BlockId first, int blocks);
  void RemoveRun(std::map<BlockId, int>::iterator run);

  const Reuse reuse_;
  std::unique_ptr<std::atomic<uint64_t>[]> own_generations_;
  std::atomic<uint64_t>* generations_;
  std::vector<int> references_;
  int free_blocks_;
  std::map<BlockId, int> runs_;  // for kContiguous: free runs, first block -> number of blocks
  std::set<std::pair<int, BlockId>> runs_by_size_;  // length and first block of each run in runs_
  std::vector<BlockId> stack_;                      // for kLastFreed: free blocks
};

}  // namespace baton
