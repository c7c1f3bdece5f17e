#include "common/kv_cache/block_pool.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {

BlockPool::BlockPool(int blocks, std::atomic<uint64_t>* generations, Reuse reuse)
    : reuse_(reuse), generations_(generations), references_(blocks, 0), free_blocks_(blocks) {
  if (generations_ == nullptr) {
    own_generations_ = std::make_unique<std::atomic<uint64_t>[]>(blocks);
    generations_ = own_generations_.get();
  }
  for (int b = 0; b < blocks; ++b) {
    BATON_CHECK(generation(b) % 2 == 0) << "block " << b << " has generation " << generation(b);
  }
  if (reuse_ == Reuse::kLastFreed) {
    for (int b = blocks - 1; b >= 0; --b) stack_.push_back(b);
  } else if (blocks > 0) {
    AddRun(0, blocks);
  }
}

absl::StatusOr<std::vector<BlockId>> BlockPool::Take(int n) {
  BATON_CHECK(n >= 0) << "take of " << n << " blocks";
  if (n > free_blocks_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV blocks: ", n, " wanted, ", free_blocks_, " of ", total_blocks(), " free"));
  }
  std::vector<BlockId> taken;
  taken.reserve(n);
  while (static_cast<int>(taken.size()) < n) {
    if (reuse_ == Reuse::kLastFreed) {
      const BlockId block = stack_.back();
      stack_.pop_back();
      Lend(block, &taken);
      continue;
    }
    const int missing = n - static_cast<int>(taken.size());
    auto size = runs_by_size_.lower_bound({missing, 0});
    // If no free run is long enough, takes the longest one, and then looks for the blocks that are
    // still missing.
    if (size == runs_by_size_.end()) --size;
    const auto [length, first] = *size;
    RemoveRun(runs_.find(first));
    const int used = length < missing ? length : missing;
    if (used < length) AddRun(first + used, length - used);
    for (int i = 0; i < used; ++i) Lend(first + i, &taken);
  }
  return taken;
}

void BlockPool::Lend(BlockId block, std::vector<BlockId>* out) {
  BATON_CHECK(references_[block] == 0) << "block " << block;
  references_[block] = 1;
  --free_blocks_;
  generations_[block].fetch_add(1, std::memory_order_acq_rel);
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not support fences
  // The new holder's writes come after this fence, so no reader sees them under the old generation.
  std::atomic_thread_fence(std::memory_order_release);
#endif
  out->push_back(block);
}

void BlockPool::AddRef(BlockId block) {
  BATON_CHECK(references(block) > 0) << "block " << block << " is free";
  ++references_[block];
}

void BlockPool::Release(BlockId block) {
  BATON_CHECK(references(block) > 0) << "block " << block << " is free";
  if (--references_[block] > 0) return;
  generations_[block].fetch_add(1, std::memory_order_acq_rel);
  ++free_blocks_;
  if (reuse_ == Reuse::kLastFreed) {
    stack_.push_back(block);
    return;
  }
  BlockId first = block;
  int length = 1;
  auto next = runs_.lower_bound(block);
  if (next != runs_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == block) {
      first = previous->first;
      length += previous->second;
      RemoveRun(previous);
    }
  }
  if (next != runs_.end() && next->first == block + 1) {
    length += next->second;
    RemoveRun(next);
  }
  AddRun(first, length);
}

void BlockPool::Release(const std::vector<BlockId>& blocks) {
  for (const BlockId block : blocks) Release(block);
}

uint64_t BlockPool::generation(BlockId block) const {
  return generations_[Checked(block)].load(std::memory_order_acquire);
}

size_t BlockPool::Checked(BlockId block) const {
  BATON_CHECK(block >= 0 && block < total_blocks())
      << "block " << block << " of " << total_blocks();
  return static_cast<size_t>(block);
}

void BlockPool::AddRun(BlockId first, int blocks) {
  runs_.emplace(first, blocks);
  runs_by_size_.emplace(blocks, first);
}

void BlockPool::RemoveRun(std::map<BlockId, int>::iterator run) {
  runs_by_size_.erase({run->second, run->first});
  runs_.erase(run);
}

}  // namespace baton
