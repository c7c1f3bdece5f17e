#include "common/kv_cache/prefix_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Number of names whose look-ups are loaded ahead.
constexpr size_t kAhead = 16;

}  // namespace

PrefixCache::PrefixCache(BlockPool* pool, int block_tokens, Options options)
    : pool_(pool),
      block_tokens_(block_tokens),
      options_(std::move(options)),
      entries_(pool->total_blocks() + 1),
      forgotten_(pool->total_blocks()),
      idle_(pool->total_blocks()),
      by_name_(options_.enabled ? pool->total_blocks() : 0, options_.hash_key) {
  BATON_CHECK(pool->free_blocks() == pool->total_blocks()) << pool->free_blocks();
  entries_[idle_].idle_next = entries_[idle_].idle_previous = idle_;
  if (options_.enabled) tokens_.resize(size_t(pool->total_blocks()) * block_tokens);
}

PrefixCache::~PrefixCache() {
  while (oldest_idle() != idle_) RemoveName(oldest_idle());
}

absl::StatusOr<std::vector<BlockId>> PrefixCache::Take(int n) {
  if (n > available()) {
    return absl::ResourceExhaustedError(absl::StrCat("KV blocks: ", n, " wanted, ", available(),
                                                     " of ", pool_->total_blocks(), " free"));
  }
  BlockId ahead = oldest_idle();
  for (int i = pool_->free_blocks(); i < n; ++i, ahead = entries_[ahead].idle_next) {
    by_name_.LoadAhead(by_name_.NameOf(ahead));
  }
  while (pool_->free_blocks() < n) {
    const BlockId oldest = oldest_idle();
    CheckContent(oldest);
    RemoveName(oldest);
    ++counters_.evicted_blocks;
  }
  return pool_->Take(n);
}

void PrefixCache::Release(absl::Span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    const bool named = entries_[block].named;
    BATON_CHECK(!named || Users(block) > 0) << "no sequence refers to block " << block;
    pool_->Release(block);
    if (!named) {
      if (pool_->references(block) == 0) MarkForgotten(block, false);
    } else if (!Held(block)) {
      NoteIdle(block);
    }
  }
}

std::vector<BlockId> PrefixCache::Pin(const PrefixChain& chain, absl::Span<const TokenId> tokens,
                                      int max_blocks) {
  std::vector<BlockId> found;
  if (!options_.enabled || chain.empty()) return found;
  const size_t wanted =
      std::min(chain.names().size(), static_cast<size_t>(std::max(max_blocks, 0)));
  BlockId parent = kNoBlock;
  for (size_t i = 0; i < wanted; ++i) {
    const BlockId block = by_name_.Find(chain.names()[i]);
    if (block == kNoBlock) break;
    const Entry& entry = entries_[block];
    const auto own = tokens.subspan(i * block_tokens_, block_tokens_);
    const bool same = entry.parent == parent && entry.parent_name == chain.ParentOf(i) &&
                      std::equal(own.begin(), own.end(), TokensOf(block).begin());
    if (!same) break;
    CheckContent(block);
    const bool held = Held(block);
    pool_->AddRef(block);
    if (!held) NoteHeld(block);
    found.push_back(block);
    parent = block;
  }
  return found;
}

void PrefixCache::Name(PrefixChain* chain, absl::Span<const TokenId> tokens,
                       absl::Span<const BlockId> blocks, int full_blocks) {
  if (!options_.enabled || chain->empty() || full_blocks == 0) return;
  size_t full = static_cast<size_t>(full_blocks);
  BATON_CHECK(full <= blocks.size() && full * block_tokens_ <= tokens.size())
      << full << " of " << blocks.size() << " blocks, " << tokens.size() << " tokens";
  chain->Extend(tokens.first(full * block_tokens_), &namer_);
  // The KV of a block was computed from all blocks before it, so it is as suspect as the first
  // forgotten one, even if another sequence has computed the same prefix anew and given it its
  // names. Forgotten blocks are rare, so usually nothing is searched here.
  if (forgotten_blocks_ > 0) {
    const auto own = blocks.first(full);
    full =
        std::find_if(own.begin(), own.end(), [this](BlockId block) { return forgotten_[block]; }) -
        own.begin();
  }
  // Begins after the last block whose name is in the cache. Usually that is the last block for
  // which Name was called. But a name that another sequence's block had may be gone, because that
  // block was evicted. This sequence's block then gets the name.
  size_t next = full;
  BlockId parent = kNoBlock;
  for (size_t loaded = full; next > 0; --next) {
    for (; loaded > 0 && loaded + kAhead > next; --loaded) {
      by_name_.LoadAhead(chain->names()[loaded - 1]);
    }
    parent = by_name_.Find(chain->names()[next - 1]);
    if (parent != kNoBlock) break;
  }
  for (; next < full; ++next) {
    const BlockId block = blocks[next];
    Entry& entry = entries_[block];
    BATON_CHECK(!entry.named) << "block " << block << " has another name";
    const BlockName& name = chain->names()[next];
    entry = {.named = true, .parent_name = chain->ParentOf(next)};
    const auto own = tokens.subspan(next * block_tokens_, block_tokens_);
    std::copy(own.begin(), own.end(), tokens_.begin() + size_t(block) * block_tokens_);
    by_name_.Add(block, name);
    pool_->AddRef(block);
    if (options_.content_hash) entry.content = options_.content_hash(block);
    if (options_.log != nullptr) {
      entry.logged = options_.log->Add(name, next == 0 ? BlockName() : chain->names()[next - 1]);
    }
    ++evictable_;  // NoteHeld subtracts this again
    Link(block, parent);
    NoteHeld(block);
    parent = block;
  }
}

void PrefixCache::Forget(absl::Span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (entries_[block].named) RemoveSubtree(block);
    MarkForgotten(block, pool_->references(block) > 0);
  }
}

void PrefixCache::MarkForgotten(BlockId block, bool forgotten) {
  if (forgotten_[block] != forgotten) forgotten_blocks_ += forgotten ? 1 : -1;
  forgotten_[block] = forgotten;
}

absl::Span<const TokenId> PrefixCache::TokensOf(BlockId block) const {
  return absl::MakeConstSpan(tokens_).subspan(size_t(block) * block_tokens_, block_tokens_);
}

void PrefixCache::NoteHeld(BlockId block) {
  while (block != kNoBlock) {
    Entry& entry = entries_[block];
    --evictable_;
    RemoveIdle(block);
    if (entry.parent == kNoBlock) return;
    const bool parent_held = Held(entry.parent);
    ++entries_[entry.parent].held_children;
    if (parent_held) return;
    block = entry.parent;
  }
}

void PrefixCache::NoteIdle(BlockId block) {
  while (block != kNoBlock) {
    Entry& entry = entries_[block];
    ++evictable_;
    InsertIdle(block, idle_);
    if (entry.parent == kNoBlock) return;
    --entries_[entry.parent].held_children;
    if (Held(entry.parent)) return;
    block = entry.parent;
  }
}

void PrefixCache::InsertIdle(BlockId block, BlockId next) {
  const BlockId previous = entries_[next].idle_previous;
  entries_[block].idle_next = next;
  entries_[block].idle_previous = previous;
  entries_[previous].idle_next = entries_[next].idle_previous = block;
}

void PrefixCache::RemoveIdle(BlockId block) {
  Entry& entry = entries_[block];
  if (entry.idle_next == kNoBlock) return;
  entries_[entry.idle_previous].idle_next = entry.idle_next;
  entries_[entry.idle_next].idle_previous = entry.idle_previous;
  entry.idle_next = entry.idle_previous = kNoBlock;
}

void PrefixCache::RemoveName(BlockId block) {
  Entry& entry = entries_[block];
  BATON_CHECK(entry.named && entry.first_child == kNoBlock) << "block " << block;
  // A held block becomes idle before it leaves the tree, so that a parent that is held only because
  // of this block becomes idle too.
  if (Held(block)) NoteIdle(block);
  --evictable_;
  RemoveIdle(block);
  if (options_.log != nullptr) options_.log->Remove(entry.logged, by_name_.NameOf(block));
  by_name_.Remove(block);
  Unlink(block);
  entry = Entry{};
  pool_->Release(block);
}

void PrefixCache::RemoveSubtree(BlockId block) {
  // Removes the leaf that is found by following the first children, until `block` itself is gone.
  while (entries_[block].named) {
    BlockId leaf = block;
    while (entries_[leaf].first_child != kNoBlock) leaf = entries_[leaf].first_child;
    RemoveName(leaf);
    MarkForgotten(leaf, pool_->references(leaf) > 0);
  }
}

void PrefixCache::Link(BlockId block, BlockId parent) {
  Entry& entry = entries_[block];
  entry.parent = parent;
  if (parent == kNoBlock) return;
  Entry& above = entries_[parent];
  entry.next_sibling = above.first_child;
  if (above.first_child != kNoBlock) entries_[above.first_child].previous_sibling = block;
  above.first_child = block;
}

void PrefixCache::Unlink(BlockId block) {
  const Entry& entry = entries_[block];
  if (entry.parent == kNoBlock) return;
  Entry& above = entries_[entry.parent];
  if (entry.previous_sibling == kNoBlock) {
    above.first_child = entry.next_sibling;
  } else {
    entries_[entry.previous_sibling].next_sibling = entry.next_sibling;
  }
  if (entry.next_sibling != kNoBlock) {
    entries_[entry.next_sibling].previous_sibling = entry.previous_sibling;
  }
}

void PrefixCache::CheckContent(BlockId block) const {
  if (!options_.content_hash) return;
  BATON_CHECK(options_.content_hash(block) == entries_[block].content)
      << "block " << block << " was written after it got its name";
}

}  // namespace baton
