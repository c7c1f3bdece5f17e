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

// Lends out this worker's KV blocks. Reference-counted: a block that several sequences share comes
// back with its last user. Loop thread only.
//
// Every block has a generation, readable by peers: up by one when the block is handed out and again
// when it is freed, so it is odd exactly while somebody holds the block. Together with the data it
// is a sequence lock (Lameter 2005; Boehm, MSPC 2012): whoever reads the generation, then the data,
// then the same generation again, has read what the holder of that generation wrote.
class BlockPool {
 public:
  enum class Reuse {
    kContiguous,  // the shortest free run that is long enough, so that transfers merge
    kLastFreed,   // last in, first out: shows soonest what was written late. For tests
  };

  // Blocks 0 .. blocks-1, all free. `generations`, one per block, all even (zeroed memory will do),
  // must outlive the pool; null makes the pool keep its own.
  explicit BlockPool(int blocks, std::atomic<uint64_t>* generations = nullptr,
                     Reuse reuse = Reuse::kContiguous);

  // Takes `n` blocks, one reference each, in any order. ResourceExhausted if fewer are free; in
  // that case none has been taken.
  absl::StatusOr<std::vector<BlockId>> Take(int n);

  // One more reference to a block that somebody holds; dies on another.
  void AddRef(BlockId block);

  // Drops one reference. Dies on a block nobody holds: going on would let two sequences write to
  // the same memory, and the wrong tokens that follow are far harder to trace than a crash.
  void Release(BlockId block);
  void Release(const std::vector<BlockId>& blocks);

  int free_blocks() const { return free_blocks_; }
  int total_blocks() const { return static_cast<int>(references_.size()); }
  // 0 for a free block.
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
  std::map<BlockId, int> runs_;                     // kContiguous: first block -> blocks
  std::set<std::pair<int, BlockId>> runs_by_size_;  // the same runs
  std::vector<BlockId> stack_;                      // kLastFreed
};

}  // namespace baton
