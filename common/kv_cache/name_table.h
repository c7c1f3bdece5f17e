#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/block_name.h"
#include "common/base/name_hash.h"
#include "common/kv_cache/block_pool.h"

namespace baton {

// Finds the block that has a name: a hash table whose memory is allocated once, because every block
// of the pool may have a name. So no call takes longer than others. One thread only.
class NameTable {
 public:
  static constexpr BlockId kNoBlock = -1;

  // For blocks from 0 to `blocks` - 1. `hash_key` is a secret number, see NameHash.
  NameTable(int blocks, uint64_t hash_key);

  // Has the processor load the memory that Find() of this name reads first. Worth it before many
  // look-ups, because the processor waits longer for memory than it works.
  void LoadAhead(const BlockName& name) const {
    __builtin_prefetch(&buckets_[hash_.BucketOf(name, buckets_.size())]);
  }
  // Returns the block that has this name; kNoBlock if there is none.
  BlockId Find(const BlockName& name) const;
  // Gives a name that no block has to a block that has none.
  void Add(BlockId block, const BlockName& name);
  // Takes the name from a block that has one.
  void Remove(BlockId block);
  // Returns the name of a block that has one.
  const BlockName& NameOf(BlockId block) const { return named_[block].name; }
  int size() const { return size_; }

 private:
  struct Named {
    BlockName name;
    BlockId next = kNoBlock;  // next block of the same bucket
  };
  BlockId& First(const BlockName& name) { return buckets_[hash_.BucketOf(name, buckets_.size())]; }

  const NameHash hash_;
  std::vector<BlockId> buckets_;  // first block of each bucket
  std::vector<Named> named_;      // index: block id
  int size_ = 0;
};

}  // namespace baton
