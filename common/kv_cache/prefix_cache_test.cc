#include "common/kv_cache/prefix_cache.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "common/base/histories.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kBlockTokens = 2;

// A sequence with its blocks.
struct TestSequence {
  PrefixChain chain;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int named = 0;  // leading blocks for which Name was called

  int full_blocks() const { return static_cast<int>(tokens.size()) / kBlockTokens; }
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(int blocks = 6) : pool_(blocks), cache_(&pool_, kBlockTokens, {}) {}

  TestSequence Begin(std::vector<TokenId> tokens, const std::string& salt = "") {
    TestSequence sequence;
    sequence.chain = PrefixChain(namer_.Root({.salt = salt}), kBlockTokens);
    sequence.chain.Extend(tokens, &namer_);
    sequence.tokens = std::move(tokens);
    sequence.blocks = cache_.Pin(sequence.chain, sequence.tokens,
                                 (static_cast<int>(sequence.tokens.size()) - 1) / kBlockTokens);
    const int all = (static_cast<int>(sequence.tokens.size()) + kBlockTokens - 1) / kBlockTokens;
    const auto own = cache_.Take(all - static_cast<int>(sequence.blocks.size())).value();
    sequence.blocks.insert(sequence.blocks.end(), own.begin(), own.end());
    return sequence;
  }
  void NameAll(TestSequence* sequence) {
    cache_.Name(&sequence->chain, sequence->tokens, sequence->blocks, sequence->full_blocks());
  }
  // Computes a sequence and ends it. Returns its blocks, which are free or cached then.
  std::vector<BlockId> Run(std::vector<TokenId> tokens, const std::string& salt = "") {
    TestSequence sequence = Begin(std::move(tokens), salt);
    NameAll(&sequence);
    cache_.Release(sequence.blocks);
    return sequence.blocks;
  }
  std::vector<BlockId> Hit(std::vector<TokenId> tokens, const std::string& salt = "") {
    PrefixChain chain(namer_.Root({.salt = salt}), kBlockTokens);
    chain.Extend(tokens, &namer_);
    const auto found = cache_.Pin(chain, tokens, 100);
    cache_.Release(found);
    return found;
  }

  BlockNamer namer_;
  BlockPool pool_;
  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, FindsTheLeadingBlocksOfAnEndedSequence) {
  const auto first = Run({1, 2, 3, 4, 5});
  EXPECT_EQ(cache_.available(), 6);
  EXPECT_EQ(pool_.free_blocks(), 4);
  EXPECT_THAT(Hit({1, 2, 3, 4, 5, 6}), ElementsAre(first[0], first[1]));
  EXPECT_THAT(Hit({1, 2, 3, 5}), ElementsAre(first[0]));
  EXPECT_THAT(Hit({3, 4}), IsEmpty());
}

TEST_F(PrefixCacheTest, NamesNoPartialBlock) {
  const auto blocks = Run({1, 2, 3});
  EXPECT_EQ(cache_.named_blocks(), 1);
  EXPECT_EQ(pool_.references(blocks[1]), 0);
}

TEST_F(PrefixCacheTest, OtherSaltsShareNothing) {
  Run({1, 2, 3, 4}, "a");
  EXPECT_THAT(Hit({1, 2, 3, 4}, "b"), IsEmpty());
  EXPECT_THAT(Hit({1, 2, 3, 4}, ""), IsEmpty());
  EXPECT_THAT(Hit({1, 2, 3, 4}, "a"), SizeIs(2));
}

TEST_F(PrefixCacheTest, EvictsWhatWasUsedLongestAgo) {
  const auto a = Run({1, 2});
  const auto b = Run({3, 4});
  const auto c = Run({5, 6});
  EXPECT_THAT(Hit({1, 2}), ElementsAre(a[0]));
  const auto taken = cache_.Take(4).value();  // three were free
  EXPECT_THAT(Hit({3, 4}), IsEmpty());
  EXPECT_THAT(Hit({1, 2}), SizeIs(1));
  EXPECT_THAT(Hit({5, 6}), SizeIs(1));
  cache_.Release(taken);
}

TEST_F(PrefixCacheTest, EvictsLeavesBeforeParents) {
  Run({1, 2, 3, 4, 5, 6});
  Run({1, 2, 7, 8});  // the second child of {1, 2}
  for (int left = 3; left >= 0; --left) {
    const auto taken = cache_.Take(6 - left).value();
    EXPECT_EQ(cache_.named_blocks(), left);
    // {1, 2} goes last, because it has children until then.
    EXPECT_THAT(Hit({1, 2}), SizeIs(left > 0 ? 1 : 0));
    cache_.Release(taken);
  }
}

TEST_F(PrefixCacheTest, DoesNotEvictWhatASequenceUses) {
  Run({1, 2, 3, 4});
  TestSequence user = Begin({1, 2, 3, 4, 5});
  EXPECT_EQ(cache_.available(), 3);
  const auto none = cache_.Take(4);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(none.status().message(), "KV blocks: 4 wanted, 3 of 6 free");
  EXPECT_EQ(cache_.named_blocks(), 2);
  EXPECT_EQ(cache_.Take(3)->size(), 3u);
}

TEST_F(PrefixCacheTest, FirstNameWinsAndTheOtherCopyStaysPrivate) {
  TestSequence one = Begin({1, 2, 3, 4}), two = Begin({1, 2, 3, 4});
  EXPECT_NE(one.blocks[0], two.blocks[0]);
  NameAll(&one);
  NameAll(&two);
  EXPECT_EQ(cache_.named_blocks(), 2);
  EXPECT_THAT(Hit({1, 2, 3, 4}), ElementsAre(one.blocks[0], one.blocks[1]));
  cache_.Release(two.blocks);
  EXPECT_EQ(pool_.references(two.blocks[0]), 0);
  cache_.Release(one.blocks);
  EXPECT_EQ(cache_.available(), 6);
}

// The second sequence's own blocks carry on the prefix of the first one. While they are in use, the
// first one's blocks can't be evicted, although no sequence refers to them.
TEST_F(PrefixCacheTest, ParentOfAUsedBlockIsNotEvicted) {
  TestSequence one = Begin({1, 2}), two = Begin({1, 2, 3, 4});
  NameAll(&one);
  NameAll(&two);
  cache_.Release(one.blocks);
  EXPECT_EQ(pool_.references(one.blocks[0]), 1);
  EXPECT_EQ(cache_.evictable_blocks(), 0);
  EXPECT_EQ(cache_.available(), 3);
  cache_.Release(two.blocks);
  EXPECT_EQ(cache_.evictable_blocks(), 2);
  EXPECT_THAT(Hit({1, 2, 3, 4}), ElementsAre(one.blocks[0], two.blocks[1]));
}

TEST_F(PrefixCacheTest, PrivateCopyGetsTheNameOnceItIsFreeAgain) {
  TestSequence one = Begin({1, 2}), two = Begin({1, 2, 3, 4});
  NameAll(&one);
  cache_.Release(one.blocks);
  const auto rest = cache_.Take(4).value();  // evicts the block of `one`
  EXPECT_EQ(cache_.named_blocks(), 0);
  NameAll(&two);
  EXPECT_THAT(Hit({1, 2, 3, 4}), ElementsAre(two.blocks[0], two.blocks[1]));
  cache_.Release(rest);
  cache_.Release(two.blocks);
}

TEST_F(PrefixCacheTest, ForgottenBlocksAreNotFoundAndGetNoNameAgain) {
  TestSequence poisoned = Begin({1, 2, 3, 4});
  NameAll(&poisoned);
  TestSequence sharer = Begin({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(sharer.blocks[1], poisoned.blocks[1]);
  cache_.Forget(poisoned.blocks);
  EXPECT_EQ(cache_.named_blocks(), 0);
  EXPECT_THAT(Hit({1, 2, 3, 4}), IsEmpty());
  NameAll(&sharer);  // its KV was computed from blocks that can't be trusted
  EXPECT_EQ(cache_.named_blocks(), 0);
  cache_.Release(poisoned.blocks);
  cache_.Release(sharer.blocks);
  EXPECT_EQ(pool_.free_blocks(), 6);
  EXPECT_THAT(Run({1, 2, 3, 4}), SizeIs(2));
  EXPECT_THAT(Hit({1, 2, 3, 4}), SizeIs(2));
}

// The first sequence has computed its last block from blocks that can't be trusted. That another
// sequence has computed the same prefix anew does not make that block right.
TEST_F(PrefixCacheTest, BlockAfterForgottenOnesGetsNoNameBehindAnotherSequencesPrefix) {
  TestSequence first = Begin({1, 2, 3, 4, 5, 6});
  cache_.Name(&first.chain, first.tokens, first.blocks, 2);
  const auto prefix = cache_.Pin(first.chain, first.tokens, 2);
  cache_.Forget(prefix);
  cache_.Release(prefix);
  const auto anew = Run({1, 2, 3, 4});
  EXPECT_THAT(Hit({1, 2, 3, 4}), ElementsAre(anew[0], anew[1]));
  NameAll(&first);
  EXPECT_THAT(Hit({1, 2, 3, 4, 5, 6}), ElementsAre(anew[0], anew[1]));
  cache_.Release(first.blocks);
  EXPECT_EQ(pool_.free_blocks(), 4);
  EXPECT_THAT(Run({1, 2, 3, 4, 5, 6}), SizeIs(3));
  EXPECT_THAT(Hit({1, 2, 3, 4, 5, 6}), SizeIs(3)) << "a block that was free may get a name again";
}

TEST_F(PrefixCacheTest, ForgettingABlockForgetsItsDescendants) {
  Run({1, 2, 3, 4, 5, 6});
  Run({1, 2, 7, 8});
  Run({9, 9});
  TestSequence poisoned = Begin({1, 2, 3});
  cache_.Forget(poisoned.blocks);
  EXPECT_EQ(cache_.named_blocks(), 1);
  EXPECT_THAT(Hit({9, 9}), SizeIs(1));
  cache_.Release(poisoned.blocks);
  EXPECT_EQ(cache_.available(), 6);
  EXPECT_EQ(pool_.free_blocks(), 5);
}

TEST_F(PrefixCacheTest, SequenceWithoutAChainNamesAndFindsNothing) {
  Run({1, 2, 3, 4});
  PrefixChain none;
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  EXPECT_THAT(cache_.Pin(none, tokens, 2), IsEmpty());
  const auto blocks = cache_.Take(2).value();
  cache_.Name(&none, tokens, blocks, 2);
  cache_.Release(blocks);
  EXPECT_EQ(cache_.named_blocks(), 2);
  EXPECT_EQ(pool_.free_blocks(), 4);
}

TEST_F(PrefixCacheTest, DisabledCacheKeepsNothing) {
  BlockPool pool(4);
  PrefixCache off(&pool, kBlockTokens, {.enabled = false});
  PrefixChain chain(namer_.Root({}), kBlockTokens);
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  chain.Extend(tokens, &namer_);
  const auto blocks = off.Take(2).value();
  off.Name(&chain, tokens, blocks, 2);
  off.Release(blocks);
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_THAT(off.Pin(chain, tokens, 2), IsEmpty());
}

TEST_F(PrefixCacheTest, CachedBlocksAreFreeAfterTheCache) {
  BlockPool pool(4);
  {
    PrefixCache cache(&pool, kBlockTokens, {});
    PrefixChain chain(namer_.Root({}), kBlockTokens);
    const std::vector<TokenId> tokens = {1, 2, 3, 4};
    const auto blocks = cache.Take(2).value();
    cache.Name(&chain, tokens, blocks, 2);
    cache.Release(blocks);
    EXPECT_EQ(pool.free_blocks(), 2);
  }
  EXPECT_EQ(pool.free_blocks(), 4);
}

TEST(PrefixCacheLogTest, TellsTheLossOfANameBeforeTheBlockCanBeReused) {
  NameLog log(8);
  BlockPool pool(2);
  PrefixCache cache(&pool, kBlockTokens, {.log = &log});
  BlockNamer namer;
  PrefixChain chain(namer.Root({}), kBlockTokens);
  const std::vector<TokenId> tokens = {1, 2};
  const auto blocks = cache.Take(1).value();
  cache.Name(&chain, tokens, blocks, 1);
  cache.Release(blocks);
  NameLog::Cursor reader;
  log.Next(&reader, 10);
  const uint64_t named = pool.generation(blocks[0]);
  std::optional<uint64_t> at_loss;
  log.set_on_change([&] { at_loss = pool.generation(blocks[0]); });
  cache.Release(cache.Take(2).value());
  EXPECT_EQ(at_loss, named);
  EXPECT_NE(pool.generation(blocks[0]), named);
}

TEST(PrefixCacheDeathTest, DiesWhenANamedBlockWasWritten) {
  std::map<BlockId, uint64_t> content;
  BlockPool pool(4);
  PrefixCache cache(&pool, kBlockTokens,
                    {.content_hash = [&](BlockId block) { return content[block]; }});
  BlockNamer namer;
  PrefixChain chain(namer.Root({}), kBlockTokens);
  const std::vector<TokenId> tokens = {1, 2};
  const auto blocks = cache.Take(1).value();
  cache.Name(&chain, tokens, blocks, 1);
  cache.Release(cache.Pin(chain, tokens, 1));
  content[blocks[0]] = 1;
  EXPECT_DEATH(cache.Pin(chain, tokens, 1), "was written after it got its name");
  cache.Release(blocks);
  EXPECT_DEATH(cache.Take(4), "was written after it got its name");
  content[blocks[0]] = 0;
}

// A model that computes everything from scratch: which blocks have names, which are held, and which
// may be evicted next.
class Model {
 public:
  struct Block {
    BlockId block;
    std::optional<BlockName> parent;  // not set for a first block
    int idle_since = 0;
  };

  bool HeldBySequences(const BlockName& name, const std::map<BlockId, int>& users) const {
    const auto used = users.find(named_.at(name).block);
    if (used != users.end() && used->second > 0) return true;
    return std::any_of(named_.begin(), named_.end(), [&](const auto& child) {
      return child.second.parent == name && HeldBySequences(child.first, users);
    });
  }
  int Evictable(const std::map<BlockId, int>& users) const {
    return static_cast<int>(std::count_if(named_.begin(), named_.end(), [&](const auto& block) {
      return !HeldBySequences(block.first, users);
    }));
  }
  // Returns the names of idle blocks without children that have been idle for the longest time.
  std::vector<BlockName> Oldest(const std::map<BlockId, int>& users) const {
    std::vector<BlockName> oldest;
    int since = 1 << 30;
    for (const auto& [name, block] : named_) {
      const bool parent = std::any_of(named_.begin(), named_.end(), [&name = name](const auto& b) {
        return b.second.parent == name;
      });
      if (parent || HeldBySequences(name, users) || block.idle_since > since) continue;
      if (block.idle_since < since) oldest.clear();
      since = block.idle_since;
      oldest.push_back(name);
    }
    return oldest;
  }
  // Sets idle_since of the blocks that the last operation has made idle.
  void NoteIdle(int operation, const std::map<BlockId, int>& users) {
    for (auto& [name, block] : named_) {
      const bool held = HeldBySequences(name, users);
      if (!held && was_held_[name]) block.idle_since = operation;
      was_held_[name] = held;
    }
  }
  void Remove(BlockName name) {
    named_.erase(name);
    was_held_.erase(name);
  }
  void RemoveSubtree(BlockName name) {
    std::vector<BlockName> children;
    for (const auto& [child, block] : named_) {
      if (block.parent == name) children.push_back(child);
    }
    for (const BlockName& child : children) RemoveSubtree(child);
    forgotten_.push_back(named_.at(name).block);
    Remove(name);
  }

  std::map<BlockName, Block> named_;
  std::map<BlockName, bool> was_held_;
  std::vector<BlockId> forgotten_;  // blocks that get no name until they are free
};

TEST(PrefixCacheRandomTest, EqualsAModelThatComputesEverythingAnew) {
  for (int seed = 0; seed < Histories(200, 600); ++seed) {
    std::mt19937 random(seed);
    const int blocks = 4 + static_cast<int>(random() % 12);
    BlockPool pool(blocks, nullptr,
                   seed % 2 ? BlockPool::Reuse::kLastFreed : BlockPool::Reuse::kContiguous);
    std::map<BlockId, uint64_t> content;
    NameLog log(1 + random() % 20);
    auto cache = std::make_unique<PrefixCache>(
        &pool, kBlockTokens,
        PrefixCache::Options{.content_hash = [&](BlockId block) { return content[block]; },
                             .log = &log});
    std::map<BlockName, BlockName> told;  // names and their parents, as the log tells them
    NameLog::Cursor reader;
    BlockNamer namer;
    const BlockName roots[] = {namer.Root({.salt = "a"}), namer.Root({.salt = "b"})};
    Model model;
    std::map<BlockId, int> users;
    std::vector<TestSequence> running;
    uint64_t evicted = 0;
    // Checks that a Take has evicted the right blocks, and removes them from the model.
    const auto evict = [&] {
      std::vector<BlockName> gone;
      for (const auto& [name, block] : model.named_) {
        if (!cache->Has(name)) gone.push_back(name);
      }
      evicted += gone.size();
      while (!gone.empty()) {
        const std::vector<BlockName> oldest = model.Oldest(users);
        const auto one = std::find_if(gone.begin(), gone.end(), [&](const BlockName& name) {
          return std::find(oldest.begin(), oldest.end(), name) != oldest.end();
        });
        ASSERT_NE(one, gone.end()) << "a block was evicted out of turn";
        model.Remove(*one);
        gone.erase(one);
      }
    };
    for (int operation = 1; operation < 400; ++operation) {
      const int action = static_cast<int>(random() % 8);
      if (action < 3) {  // begins a sequence
        TestSequence sequence;
        sequence.tokens.resize(1 + random() % 9);
        for (TokenId& token : sequence.tokens) token = static_cast<TokenId>(random() % 2);
        sequence.chain = PrefixChain(roots[random() % 8 == 0], kBlockTokens);
        sequence.chain.Extend(sequence.tokens, &namer);
        const int max_hits = (static_cast<int>(sequence.tokens.size()) - 1) / kBlockTokens;
        int expected = 0;
        while (expected < max_hits && model.named_.contains(sequence.chain.names()[expected])) {
          ++expected;
        }
        sequence.blocks = cache->Pin(sequence.chain, sequence.tokens, max_hits);
        ASSERT_THAT(sequence.blocks, SizeIs(expected));
        for (const BlockId block : sequence.blocks) ++users[block];
        for (int i = 0; i < expected; ++i) {
          ASSERT_EQ(sequence.blocks[i], model.named_.at(sequence.chain.names()[i]).block);
        }
        sequence.named = expected;
        model.NoteIdle(operation, users);  // the blocks that were found are held now
        const int missing =
            (static_cast<int>(sequence.tokens.size()) + kBlockTokens - 1) / kBlockTokens - expected;
        const int available = cache->available();
        const int named = cache->named_blocks();
        auto own = cache->Take(missing);
        ASSERT_EQ(own.ok(), missing <= available);
        if (!own.ok()) {
          ASSERT_EQ(cache->named_blocks(), named);
          cache->Release(sequence.blocks);
          for (const BlockId block : sequence.blocks) --users[block];
        } else {
          ASSERT_NO_FATAL_FAILURE(evict());
          for (const BlockId block : *own) {
            ASSERT_EQ(users[block]++, 0);
            content[block] = random();
            sequence.blocks.push_back(block);
          }
          running.push_back(std::move(sequence));
        }
      } else if (running.empty()) {
        continue;
      } else {
        std::swap(running[random() % running.size()], running.back());
        TestSequence& sequence = running.back();
        if (action < 5) {  // names some more of its blocks
          if (sequence.named < sequence.full_blocks()) ++sequence.named;
          cache->Name(&sequence.chain, sequence.tokens, sequence.blocks, sequence.named);
          const auto first_forgotten =
              std::find_first_of(sequence.blocks.begin(), sequence.blocks.begin() + sequence.named,
                                 model.forgotten_.begin(), model.forgotten_.end());
          const int end = static_cast<int>(first_forgotten - sequence.blocks.begin());
          int next = end;
          while (next > 0 && !model.named_.contains(sequence.chain.names()[next - 1])) --next;
          for (; next < end; ++next) {
            Model::Block named = {.block = sequence.blocks[next], .parent = std::nullopt};
            if (next > 0) named.parent = sequence.chain.names()[next - 1];
            model.named_[sequence.chain.names()[next]] = named;
            model.was_held_[sequence.chain.names()[next]] = true;
          }
        } else {
          if (action == 7 && random() % 4 == 0) {
            cache->Forget(sequence.blocks);
            for (const BlockId block : sequence.blocks) {
              const auto it =
                  std::find_if(model.named_.begin(), model.named_.end(),
                               [&](const auto& named) { return named.second.block == block; });
              if (it != model.named_.end()) model.RemoveSubtree(it->first);
              model.forgotten_.push_back(block);
            }
          }
          cache->Release(sequence.blocks);
          for (const BlockId block : sequence.blocks) --users[block];
          running.pop_back();
        }
      }
      auto& forgotten = model.forgotten_;
      forgotten.erase(std::remove_if(forgotten.begin(), forgotten.end(),
                                     [&](BlockId block) { return users[block] == 0; }),
                      forgotten.end());
      model.NoteIdle(operation, users);
      ASSERT_EQ(cache->named_blocks(), static_cast<int>(model.named_.size()));
      ASSERT_EQ(cache->evictable_blocks(), model.Evictable(users));
      std::set<BlockId> not_free;
      for (const auto& [name, block] : model.named_) not_free.insert(block.block);
      for (const auto& [block, count] : users) {
        if (count > 0) not_free.insert(block);
      }
      ASSERT_EQ(pool.free_blocks(), blocks - static_cast<int>(not_free.size()));
      if (random() % 8 > 0) continue;
      while (const auto changes = log.Next(&reader, 1 + random() % 4)) {
        if (changes->after == 0) told.clear();
        for (const BlockName& name : changes->removed) told.erase(name);
        for (const auto& added : changes->added) told[added.name] = added.parent;
      }
      std::map<BlockName, BlockName> expected;
      for (const auto& [name, block] : model.named_) {
        expected[name] = block.parent.value_or(BlockName());
      }
      ASSERT_EQ(told, expected);
    }
    EXPECT_EQ(cache->counters().evicted_blocks, evicted);
    EXPECT_GT(evicted, 0u) << "seed " << seed;
    for (const TestSequence& sequence : running) cache->Release(sequence.blocks);
    EXPECT_EQ(cache->available(), blocks);
    cache.reset();
    EXPECT_EQ(pool.free_blocks(), blocks);
  }
}

}  // namespace
}  // namespace baton
