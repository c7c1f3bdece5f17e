#include "common/kv_cache/name_table.h"

#include <algorithm>

namespace baton {

NameTable::NameTable(int blocks, uint64_t hash_key)
    : hash_(hash_key), buckets_(std::max(blocks, 1), kNoBlock), named_(blocks) {}

BlockId NameTable::Find(const BlockName& name) const {
  BlockId block = buckets_[hash_.BucketOf(name, buckets_.size())];
  while (block != kNoBlock && named_[block].name != name) block = named_[block].next;
  return block;
}

void NameTable::Add(BlockId block, const BlockName& name) {
  BlockId& first = First(name);
  named_[block] = {.name = name, .next = first};
  first = block;
  ++size_;
}

void NameTable::Remove(BlockId block) {
  BlockId* link = &First(named_[block].name);
  while (*link != block) link = &named_[*link].next;
  *link = named_[block].next;
  --size_;
}

}  // namespace baton
