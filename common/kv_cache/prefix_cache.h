#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/kv_cache/block_namer.h"
#include "common/kv_cache/block_pool.h"
#include "common/kv_cache/name_log.h"
#include "common/kv_cache/name_table.h"

namespace baton {

// Keeps full blocks of KV after their sequences have ended, and finds them again by their names. It
// stands in front of the BlockPool: a worker takes and releases all blocks here. Loop thread only.
//
// A block with a name has one reference from the cache besides those of its sequences. It is *held*
// while a sequence refers to it or to a descendant, which is a block whose prefix it belongs to. A
// block with a name that is not held can be evicted. The block that has not been held for the
// longest time goes first, and a block goes only after all its descendants.
//
// Guarantees:
//   - A block with a name is never lent out again before its name is gone.
//   - available() blocks can be taken now; no sequence loses a block by that.
//   - Forget() removes names for good. The blocks that it was called for, and their descendants,
//     get no name again before they have been free.
class PrefixCache {
 public:
  struct Options {
    bool enabled = true;  // If false, no block gets a name, and nothing is found.
    // For tests and debug builds: returns a hash of the block's bytes. It is called when a block
    // gets its name, when a sequence finds it, and when it is evicted. The process aborts if the
    // bytes have changed, because a block with a name must never be written. May be empty.
    std::function<uint64_t(BlockId)> content_hash;
    // Is told each name that a block gets or loses. A name's loss is noted before the block's
    // generation goes up. Must outlive the cache. May be null.
    NameLog* log = nullptr;
    // Secret number, so that nobody can make prompts whose names collide in the table of names.
    uint64_t hash_key = 0;
  };
  // Counts since the start.
  struct Counters {
    uint64_t evicted_blocks = 0;
  };

  // `pool` must outlive the cache, and all its blocks must be free. `block_tokens` is the number of
  // tokens in a block.
  PrefixCache(BlockPool* pool, int block_tokens, Options options);
  // Releases the blocks that only the cache refers to.
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Returns the number of blocks that Take can give now: free blocks, and those that can be
  // evicted. This is what admission and load reports count as free.
  int available() const { return pool_->free_blocks() + evictable_; }
  // Takes `n` blocks, one reference each, in any order. Evicts as many blocks as are missing.
  // Returns ResourceExhausted, takes none and evicts none, if fewer are available.
  absl::StatusOr<std::vector<BlockId>> Take(int n);
  // Drops one reference of a sequence to each block. A block without a name is then free if that
  // was its last reference. Aborts on a block that no sequence refers to.
  void Release(absl::Span<const BlockId> blocks);

  // Finds the leading blocks of a sequence: the longest run of names of `chain` whose blocks are
  // here, at most `max_blocks`. Compares each block's parent and token ids too. Adds a reference to
  // each block for the sequence, which must Release() it. `tokens` are the tokens of the sequence.
  std::vector<BlockId> Pin(const PrefixChain& chain, absl::Span<const TokenId> tokens,
                           int max_blocks);
  // Gives the first `full_blocks` blocks of a sequence their names. All their slots must have been
  // written by steps that ended without an error, or by a pull that was validated. `blocks` and
  // `tokens` are those of the sequence, which must refer to the blocks. Extends `chain` as needed.
  //
  // If another block already has the name that a block would get, the other block keeps the name,
  // and this sequence's block stays without one. Blocks after a block of this sequence that
  // Forget() was called for get no name, even if another block has the name of each block before
  // them.
  void Name(PrefixChain* chain, absl::Span<const TokenId> tokens, absl::Span<const BlockId> blocks,
            int full_blocks);
  // Removes the names of these blocks, and of all their descendants, because their content can't be
  // trusted. Sequences that refer to such blocks keep them.
  void Forget(absl::Span<const BlockId> blocks);
  // Returns true if a block has this name. Does not count as a use of the block.
  bool Has(const BlockName& name) const { return by_name_.Find(name) != kNoBlock; }

  bool enabled() const { return options_.enabled; }
  int total_blocks() const { return pool_->total_blocks(); }
  int named_blocks() const { return by_name_.size(); }
  int evictable_blocks() const { return evictable_; }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr BlockId kNoBlock = NameTable::kNoBlock;
  // State of one block of the pool. The links are meaningful while `named` is true.
  struct Entry {
    bool named = false;
    BlockName parent_name;
    BlockId parent = kNoBlock;  // block with the name `parent_name`; kNoBlock for a first block
    BlockId first_child = kNoBlock, next_sibling = kNoBlock, previous_sibling = kNoBlock;
    int held_children = 0;
    BlockId idle_next = kNoBlock, idle_previous = kNoBlock;  // set while the block can be evicted
    uint64_t logged = 0;   // number of the change in Options::log that added the name
    uint64_t content = 0;  // Options::content_hash at the time when the block got its name
  };

  // Number of references from sequences to a block with a name.
  int Users(BlockId block) const { return pool_->references(block) - 1; }
  bool Held(BlockId block) const { return Users(block) > 0 || entries_[block].held_children > 0; }
  absl::Span<const TokenId> TokensOf(BlockId block) const;
  // NoteHeld is called when a block begins to be held, and NoteIdle when it is held no more.
  void NoteHeld(BlockId block);
  void NoteIdle(BlockId block);
  // Inserts a block before `next` in the list of blocks that can be evicted.
  void InsertIdle(BlockId block, BlockId next);
  // Removes a block from the list. Does nothing if it is not there.
  void RemoveIdle(BlockId block);
  BlockId oldest_idle() const { return entries_[idle_].idle_next; }
  // Takes the name from a block without children, and drops the cache's reference.
  void RemoveName(BlockId block);
  void RemoveSubtree(BlockId block);
  void MarkForgotten(BlockId block, bool forgotten);
  void Link(BlockId block, BlockId parent);
  void Unlink(BlockId block);
  void CheckContent(BlockId block) const;

  BlockPool* const pool_;
  const int block_tokens_;
  const Options options_;
  BlockNamer namer_;
  // Index: block id. The last entry is no block: it is both ends of the list of the blocks that can
  // be evicted, in the order in which they became idle. A block is held while any of its children
  // is held, so it becomes idle after all of them. The first block of the list has no children.
  std::vector<Entry> entries_;
  // Index: block id. True from Forget() until the block is free. Such a block has no name.
  std::vector<bool> forgotten_;
  int forgotten_blocks_ = 0;     // number of blocks for which forgotten_ is true
  const BlockId idle_;           // index of the last entry of entries_
  std::vector<TokenId> tokens_;  // token ids of the blocks with a name: [blocks, block_tokens]
  NameTable by_name_;
  int evictable_ = 0;  // blocks with a name that are not held
  Counters counters_;
};

}  // namespace baton
