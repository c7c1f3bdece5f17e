#include "router/index/prefix_index.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <malloc.h>

#include "common/base/histories.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using testing::IsEmpty;

constexpr BlockName kNoParent{};
constexpr size_t kWorkers = 40;

// Options for an index with room for at least 64 * `chunks` names, of up to kWorkers workers.
PrefixIndex::Options Small(int chunks, uint64_t hash_key = 0) {
  return {.max_bytes = PrefixIndex::MinBytes(kWorkers) + (chunks - 1) * size_t{4700},
          .max_workers = kWorkers,
          .hash_key = hash_key};
}

BlockName Name(uint64_t n) { return {n * 0x9e3779b97f4a7c15 + 1, n * 0xd1342543de82ef95 + 7}; }

// The names of a prompt of `blocks` blocks. Prompts with different numbers share no name.
std::vector<BlockName> Prompt(uint64_t number, int blocks) {
  std::vector<BlockName> names;
  for (int i = 0; i < blocks; ++i) names.push_back(Name(number * 1000000 + i));
  return names;
}

void AddPrompt(PrefixIndex* index, WorkerKey worker, const std::vector<BlockName>& names) {
  std::vector<PrefixIndex::Change> changes;
  for (size_t i = 0; i < names.size(); ++i) {
    changes.push_back({true, names[i], i > 0 ? names[i - 1] : kNoParent});
  }
  index->Apply(worker, changes);
}

std::map<WorkerKey, int> Leading(PrefixIndex* index, absl::Span<const BlockName> prompt) {
  std::vector<HeldBlocks> held;
  index->LeadingBlocks(prompt, &held);
  std::map<WorkerKey, int> blocks;
  for (const HeldBlocks& one : held) {
    EXPECT_GT(one.blocks, 0);
    EXPECT_TRUE(blocks.emplace(one.worker, one.blocks).second) << one.worker << " twice";
  }
  return blocks;
}

using Blocks = std::map<WorkerKey, int>;

void SweepAll(PrefixIndex* index) {
  for (int i = 0; index->Sweep(100); ++i) ASSERT_LT(i, 1000000);
}

TEST(PrefixIndexTest, CountsTheLeadingBlocksOfEachWorker) {
  PrefixIndex index(Small(4));
  const auto prompt = Prompt(1, 10);
  AddPrompt(&index, 1, prompt);
  AddPrompt(&index, 2, {prompt.begin(), prompt.begin() + 4});
  // Worker 3 lacks the first block, and worker 4 the third.
  for (int i = 1; i < 10; ++i) index.Add(3, prompt[i - 1], prompt[i]);
  for (const int i : {0, 1, 3, 4}) index.Add(4, i > 0 ? prompt[i - 1] : kNoParent, prompt[i]);
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 10}, {2, 4}, {4, 2}}));
  index.Remove(1, prompt[7]);
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 7}, {2, 4}, {4, 2}}));
  EXPECT_THAT(Leading(&index, Prompt(2, 3)), IsEmpty());
  EXPECT_THAT(Leading(&index, {}), IsEmpty());
  EXPECT_EQ(index.names(), 10u);
}

TEST(PrefixIndexTest, ARemovedWorkerIsGoneAtOnceAndItsMemoryAfterSweeping) {
  PrefixIndex index(Small(8));
  const size_t empty = index.bytes();
  const auto prompt = Prompt(1, 200);
  AddPrompt(&index, 1, prompt);
  AddPrompt(&index, 2, {prompt.begin(), prompt.begin() + 100});
  index.RemoveWorker(1);
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{2, 100}}));
  EXPECT_EQ(index.names(), 200u);
  // A worker that comes back is a new one: its earlier names do not count.
  AddPrompt(&index, 1, {prompt.begin(), prompt.begin() + 3});
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 3}, {2, 100}}));
  EXPECT_TRUE(index.Sweep(1));
  SweepAll(&index);
  EXPECT_EQ(index.names(), 100u);
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 3}, {2, 100}}));
  index.RemoveWorker(1);
  index.RemoveWorker(2);
  index.RemoveWorker(3);
  EXPECT_EQ(index.workers(), 0u);
  SweepAll(&index);
  EXPECT_EQ(index.names(), 0u);
  EXPECT_EQ(index.bytes(), empty);
}

TEST(PrefixIndexTest, TheLeafTouchedLongestAgoIsEvictedFirst) {
  PrefixIndex index(Small(1));
  const auto a = Prompt(1, 30), b = Prompt(2, 30);
  AddPrompt(&index, 1, a);
  AddPrompt(&index, 1, b);
  EXPECT_EQ(Leading(&index, a), (Blocks{{1, 30}}));  // Now `a` is younger than `b`.
  ASSERT_EQ(index.evictions(), 0u);
  AddPrompt(&index, 1, Prompt(3, 14));
  EXPECT_EQ(index.evictions(), 10u);
  EXPECT_EQ(index.names(), 64u);
  EXPECT_EQ(Leading(&index, b), (Blocks{{1, 20}}));
  EXPECT_EQ(Leading(&index, a), (Blocks{{1, 30}}));
}

TEST(PrefixIndexTest, AParentIsNotEvictedToMakeRoomForItsChild) {
  PrefixIndex index(Small(1));
  const auto prompt = Prompt(1, 70);
  AddPrompt(&index, 1, prompt);  // The only leaf is always the parent of the next name.
  EXPECT_EQ(index.dropped(), 1u);
  // The names behind the dropped name are not connected to the names before it. So names before it
  // can be evicted.
  EXPECT_EQ(index.evictions(), 6u);
  EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 58}}));
}

TEST(PrefixIndexTest, NamesMayComeInAnyOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    PrefixIndex index(Small(1));
    const size_t empty = index.bytes();
    const auto prompt = Prompt(1, 40);
    std::vector<int> order(40);
    for (int i = 0; i < 40; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) index.Add(1, i > 0 ? prompt[i - 1] : kNoParent, prompt[i]);
    EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 40}}));
    // The index now knows the parent of each name, so only the last name of the prompt is a leaf.
    AddPrompt(&index, 2, Prompt(2, 34));
    EXPECT_EQ(Leading(&index, prompt), (Blocks{{1, 30}}));
    index.RemoveWorker(1);
    index.RemoveWorker(2);
    SweepAll(&index);
    EXPECT_EQ(index.bytes(), empty);
  }
}

TEST(PrefixIndexTest, NamesThatAreEachOthersParentsDoNotBlockIt) {
  PrefixIndex index(Small(1));
  const size_t empty = index.bytes();
  for (int i = 0; i < 100; ++i) index.Add(1, Name(i), Name((i + 1) % 50));
  index.Add(1, Name(3), Name(3));
  for (int i = 0; i < 100; ++i) index.Add(2, Name(1000 + i), Name(2000 + i));
  EXPECT_LE(index.bytes(), Small(1).max_bytes);
  EXPECT_EQ(Leading(&index, {{Name(7)}}), (Blocks{{1, 1}}));
  index.RemoveWorker(1);
  index.RemoveWorker(2);
  SweepAll(&index);
  EXPECT_EQ(index.names(), 0u);
  EXPECT_EQ(index.bytes(), empty);
}

TEST(PrefixIndexTest, WorkersBeyondTheLimitAreDropped) {
  PrefixIndex index(Small(1));
  for (WorkerKey worker = 1; worker <= kWorkers + 2; ++worker) {
    index.Add(worker, kNoParent, Name(1));
  }
  AddPrompt(&index, kWorkers + 1, {Name(2), Name(3)});
  EXPECT_EQ(Leading(&index, {{Name(1)}}).size(), kWorkers);
  EXPECT_EQ(index.dropped(), 4u);
  // The slot of a removed worker is free again when its names are gone.
  index.RemoveWorker(5);
  index.Add(100, kNoParent, Name(1));
  EXPECT_EQ(index.dropped(), 5u);
  SweepAll(&index);
  index.Add(100, kNoParent, Name(1));
  EXPECT_EQ(index.dropped(), 5u);
  EXPECT_EQ(Leading(&index, {{Name(1)}}).count(100), 1u);
}

TEST(PrefixIndexTest, AThousandWorkersHoldTheSamePrompt) {
  PrefixIndex index({.max_bytes = 1 << 20, .max_workers = 1500});
  const size_t empty = index.bytes();
  const auto prompt = Prompt(1, 100);
  Blocks expected;
  for (WorkerKey worker = 1; worker <= 1000; ++worker) {
    const int blocks = static_cast<int>(1 + worker * 7 % 100);
    AddPrompt(&index, worker, {prompt.begin(), prompt.begin() + blocks});
    expected[worker] = blocks;
  }
  EXPECT_EQ(Leading(&index, prompt), expected);
  for (WorkerKey worker = 1; worker <= 1000; worker += 2) {
    index.RemoveWorker(worker);
    expected.erase(worker);
  }
  EXPECT_EQ(Leading(&index, prompt), expected);
  SweepAll(&index);
  EXPECT_EQ(Leading(&index, prompt), expected);
  for (WorkerKey worker = 2; worker <= 1000; worker += 2) {
    for (const BlockName& name : prompt) index.Remove(worker, name);
  }
  EXPECT_EQ(index.bytes(), empty);
  EXPECT_EQ(index.evictions(), 0u);
  EXPECT_EQ(index.dropped(), 0u);
}

TEST(PrefixIndexTest, HoldersThatFindNoRoomAreDropped) {
  PrefixIndex index(Small(1));
  // All names have eight holders. Name(0) is the parent of all other names.
  for (WorkerKey worker = 1; worker <= 8; ++worker) {
    for (int i = 0; i < 64; ++i) index.Add(worker, i > 0 ? Name(0) : kNoParent, Name(i));
  }
  EXPECT_EQ(index.evictions(), 0u);
  index.Add(9, kNoParent, Name(0));  // The ninth holder needs a page, so a leaf is evicted.
  EXPECT_EQ(index.evictions(), 1u);
  EXPECT_THAT(Leading(&index, {{Name(1)}}), IsEmpty());
  EXPECT_EQ(Leading(&index, {{Name(0)}}).size(), 9u);
  EXPECT_LE(index.bytes(), Small(1).max_bytes);
}

// Compares bytes(), the memory that the index says it uses, with the memory that it has allocated.
TEST(PrefixIndexTest, BytesAreWhatWasAllocated) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the allocators of the sanitizers have no mallinfo2";
#endif
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  constexpr int kNames = 200000;
  std::vector<PrefixIndex::Change> changes;
  for (int i = 0; i < kNames; ++i) {
    changes.push_back({true, Name(i), i % 500 > 0 ? Name(i - 1) : kNoParent});
  }
  const double before = allocated();
  PrefixIndex index({.max_bytes = size_t{kNames} * 80, .max_workers = 64});
  const double empty = static_cast<double>(index.bytes());
  EXPECT_NEAR((allocated() - before) / empty, 1, 0.01);
  for (WorkerKey worker = 1; worker <= 8; ++worker) index.Apply(worker, changes);
  EXPECT_EQ(index.names(), size_t{kNames});
  EXPECT_EQ(index.evictions(), 0u);
  const double full = static_cast<double>(index.bytes());
  EXPECT_NEAR((allocated() - before) / full, 1, 0.01);
  EXPECT_LE(full / kNames, 80);
  for (WorkerKey worker = 1; worker <= 8; ++worker) index.RemoveWorker(worker);
  SweepAll(&index);
  EXPECT_EQ(static_cast<double>(index.bytes()), empty);
  EXPECT_NEAR((allocated() - before) / empty, 1, 0.01);
}

// --- Random histories, compared with a reference implementation -------------------------------

// Reference implementation of PrefixIndex: plain maps, and searches instead of links. It does not
// know when memory is short. The index says how many leaves it has evicted, and the reference says
// which ones these must be.
class Reference {
 public:
  struct Entry {
    BlockName parent;
    uint64_t touched = 0;
    std::set<WorkerKey> holders;
  };

  size_t names() const { return entries_.size(); }

  Blocks Leading(absl::Span<const BlockName> prompt) {
    Blocks blocks;
    for (size_t i = 0; i < prompt.size(); ++i) {
      const auto it = entries_.find(prompt[i]);
      if (it == entries_.end()) break;
      bool any = false;
      for (const WorkerKey worker : it->second.holders) {
        if (i > 0 && (blocks.count(worker) == 0 || blocks[worker] != static_cast<int>(i))) continue;
        ++blocks[worker];
        any = true;
      }
      if (!any) break;
      it->second.touched = ++touches_;
    }
    return blocks;
  }

  // First part of an addition: the index touches the name, then evicts `evictions` leaves. Returns
  // the leaves. Neither the name nor a parent that becomes known is evicted.
  std::vector<BlockName> BeginAdd(const BlockName& parent, const BlockName& name,
                                  uint64_t evictions) {
    const auto it = entries_.find(name);
    if (it != entries_.end()) it->second.touched = ++touches_;
    const bool links = it == entries_.end() || it->second.parent == kNoParent;
    kept_ = {name};
    if (links) kept_.insert(parent);
    std::vector<BlockName> evicted;
    for (; evictions > 0; --evictions) {
      const std::optional<BlockName> leaf = OldestLeaf();
      EXPECT_TRUE(leaf.has_value()) << "evicted a name that is no leaf";
      if (!leaf) break;
      evicted.push_back(*leaf);
      Erase(*leaf);
    }
    return evicted;
  }
  // True if the index had to drop the addition, because nothing is left to evict.
  bool NothingToEvict() const { return !OldestLeaf().has_value(); }
  // Second part of an addition.
  void FinishAdd(WorkerKey worker, const BlockName& parent, const BlockName& name) {
    const auto [it, is_new] = entries_.emplace(name, Entry{});
    if (is_new) it->second.touched = ++touches_;
    if (it->second.parent == kNoParent && parent != name) it->second.parent = parent;
    it->second.holders.insert(worker);
  }

  void Remove(WorkerKey worker, const BlockName name) {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return;
    it->second.holders.erase(worker);
    if (it->second.holders.empty()) Erase(name);
  }
  void RemoveWorker(WorkerKey worker) {
    std::vector<BlockName> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    for (const BlockName& name : names) Remove(worker, name);
  }

 private:
  std::optional<BlockName> OldestLeaf() const {
    std::set<BlockName> parents;
    for (const auto& [name, entry] : entries_) parents.insert(entry.parent);
    std::optional<BlockName> oldest;
    for (const auto& [name, entry] : entries_) {
      if (parents.count(name) > 0 || kept_.count(name) > 0) continue;
      if (!oldest || entry.touched < entries_.at(*oldest).touched) oldest = name;
    }
    return oldest;
  }
  void Erase(const BlockName name) { entries_.erase(name); }

  std::map<BlockName, Entry> entries_;
  std::set<BlockName> kept_;
  uint64_t touches_ = 0;
};

// Names that random histories are made of: a forest in which some names have several children.
struct Forest {
  Forest(std::mt19937* random, int count) {
    const auto number = [&](uint64_t below) { return (*random)() % below; };
    const uint64_t kind = number(4);
    const bool straight = number(8) == 0;  // No name has two children, and chains are longer.
    for (int i = 0; i < count; ++i) {
      BlockName name{(uint64_t{(*random)()} << 32) | (*random)(),
                     (uint64_t{(*random)()} << 32) | (*random)()};
      if (kind == 1) name.low <<= 48;                       // All names end in the same bits.
      if (kind == 2) name.low = 5;                          // Names differ only in `high`.
      if (kind == 3) name = {uint64_t(i), name.low >> 60};  // Names are small.
      if (kind == 3 && i == 0) name.low = 1;                // No name is 0.
      names.push_back(name);
      // Mostly long chains.
      const int parent = i == 0 || number(straight ? 100 : 12) == 0 ? -1
                         : straight || number(5) > 0                ? i - 1
                                                                    : static_cast<int>(number(i));
      parents.push_back(parent);
    }
  }
  const BlockName& ParentOf(int i) const {
    static constexpr BlockName kNone{};
    return parents[i] < 0 ? kNone : names[parents[i]];
  }
  // The names from the root of the tree to name `i`.
  std::vector<BlockName> PathTo(int i) const {
    std::vector<BlockName> path;
    for (; i >= 0; i = parents[i]) path.push_back(names[i]);
    std::reverse(path.begin(), path.end());
    return path;
  }

  std::vector<BlockName> names;
  std::vector<int> parents;  // -1: none.
};

class History {
 public:
  History(uint32_t seed, int names, int chunks, bool sweeps_at_once, uint64_t hash_key = 0)
      : random_(seed),
        forest_(&random_, names),
        options_(Small(chunks, hash_key)),
        sweeps_at_once_(sweeps_at_once),
        index_(options_),
        empty_bytes_(index_.bytes()) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) Step();
    for (WorkerKey worker = 1; worker <= 12; ++worker) {
      if (!testing::Test::HasFatalFailure()) CompareAll();
      RemoveWorker(worker);
    }
    SweepAll(&index_);
    ASSERT_EQ(index_.names(), 0u);
    ASSERT_EQ(index_.workers(), 0u);
    ASSERT_EQ(index_.bytes(), empty_bytes_);
  }

  uint64_t evictions() const { return index_.evictions(); }
  uint64_t dropped() const { return index_.dropped(); }
  const std::vector<Blocks>& answers() const { return answers_; }

 private:
  uint32_t Number(uint32_t below) { return random_() % below; }
  WorkerKey SomeWorker() { return 1 + Number(12); }

  void Step() {
    const uint32_t kind = Number(100);
    const int i = static_cast<int>(Number(static_cast<uint32_t>(forest_.names.size())));
    if (kind < 35) {
      Add(SomeWorker(), forest_.ParentOf(i), forest_.names[i]);
    } else if (kind < 60) {  // A whole prompt.
      const WorkerKey worker = SomeWorker();
      BlockName parent;
      for (const BlockName& name : forest_.PathTo(i)) {
        Add(worker, std::exchange(parent, name), name);
      }
    } else if (kind < 72) {
      const WorkerKey worker = SomeWorker();
      index_.Remove(worker, forest_.names[i]);
      reference_.Remove(worker, forest_.names[i]);
    } else if (kind < 94) {
      Compare(forest_.PathTo(i));
    } else if (kind < 95) {
      RemoveWorker(SomeWorker());
      if (sweeps_at_once_) Sweep(1000000);
    } else {
      Sweep(sweeps_at_once_ ? 1000000 : static_cast<int>(Number(800)));
    }
    ASSERT_LE(index_.bytes(), options_.max_bytes);
    if (!sweeps_at_once_) return;
    ASSERT_EQ(index_.names(), reference_.names());
  }

  void Compare(const std::vector<BlockName>& prompt) {
    answers_.push_back(Leading(&index_, prompt));
    ASSERT_EQ(answers_.back(), reference_.Leading(prompt));
  }
  void CompareAll() {
    for (const BlockName& name : forest_.names) Compare({name});
  }

  // Makes an addition in the index, and repeats it in the reference.
  void Add(WorkerKey worker, const BlockName& parent, const BlockName& name) {
    const uint64_t evictions = index_.evictions(), dropped = index_.dropped();
    index_.Add(worker, parent, name);
    for (const BlockName& leaf :
         reference_.BeginAdd(parent, name, index_.evictions() - evictions)) {
      EXPECT_THAT(Leading(&index_, {{leaf}}), IsEmpty());
    }
    if (index_.dropped() == dropped) {
      reference_.FinishAdd(worker, parent, name);
    } else {
      EXPECT_TRUE(reference_.NothingToEvict());
    }
  }
  void RemoveWorker(WorkerKey worker) {
    index_.RemoveWorker(worker);
    reference_.RemoveWorker(worker);
  }
  void Sweep(int budget) {
    const bool more = index_.Sweep(budget);
    if (sweeps_at_once_) {
      ASSERT_FALSE(more);
    }
  }

  std::mt19937 random_;
  Forest forest_;
  const PrefixIndex::Options options_;
  const bool sweeps_at_once_;
  PrefixIndex index_;
  Reference reference_;
  const size_t empty_bytes_;
  std::vector<Blocks> answers_;
};

TEST(PrefixIndexTest, AgreesWithTheReferenceWhileItEvicts) {
  uint64_t evictions = 0, dropped = 0;
  const uint32_t histories = Histories(400, 2000);
  for (uint32_t seed = 0; seed < histories; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history(seed, 150, 1, true, seed);
    history.Run(200);
    ASSERT_FALSE(testing::Test::HasFailure());
    evictions += history.evictions();
    dropped += history.dropped();
  }
  EXPECT_GT(evictions, 50 * histories);
  EXPECT_GT(dropped, histories / 20);
}

TEST(PrefixIndexTest, AgreesWithTheReferenceWhileItSweeps) {
  const uint32_t histories = Histories(300, 1000);
  for (uint32_t seed = 0; seed < histories; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history(seed, 150, 400, false);
    history.Run(200);
    ASSERT_FALSE(testing::Test::HasFailure());
    ASSERT_EQ(history.evictions() + history.dropped(), 0u);
  }
}

TEST(PrefixIndexTest, TheKeyOfTheHashTableChangesNoAnswer) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    History one(seed, 150, 1, true, 1), other(seed, 150, 1, true, 2);
    one.Run(200);
    other.Run(200);
    EXPECT_EQ(one.answers(), other.answers());
    EXPECT_EQ(one.evictions(), other.evictions());
  }
}

TEST(PrefixIndexTest, ListsDoTheSameAsSingleNames) {
  std::mt19937 random(1);
  uint64_t evictions = 0;
  for (int round = 0; round < 50; ++round) {
    const Forest forest(&random, 200);
    PrefixIndex lists(Small(1)), singles(Small(1));
    std::vector<PrefixIndex::Change> changes;
    for (int i = 0; i < 100; ++i) {
      const WorkerKey worker = 1 + random() % 12;
      const auto path = forest.PathTo(static_cast<int>(random() % 200));
      changes.clear();
      if (const uint32_t kind = random() % 8; kind == 0) {  // As a worker evicts a prompt.
        for (auto it = path.rbegin(); it != path.rend(); ++it) changes.push_back({false, *it, {}});
      } else {
        BlockName parent;
        for (const BlockName& name : path) {
          if (kind == 1 && random() % 4 == 0) changes.push_back({false, parent, {}});
          // Every change of kind 2 may be left out, which leaves gaps between the names.
          if (kind != 2 || random() % 4 > 0) changes.push_back({kind != 3, name, parent});
          parent = name;
        }
      }
      for (const PrefixIndex::Change& change : changes) {
        if (change.added) {
          singles.Add(worker, change.parent, change.name);
        } else {
          singles.Remove(worker, change.name);
        }
      }
      lists.Apply(worker, changes);
      EXPECT_EQ(Leading(&lists, path), Leading(&singles, path));
      EXPECT_EQ(lists.names(), singles.names());
    }
    EXPECT_EQ(lists.evictions(), singles.evictions());
    evictions += lists.evictions();
  }
  EXPECT_GT(evictions, 1000u);
}

// Sweeps in small parts while names are evicted. Then the order of evictions depends on which names
// of removed workers are swept already, so the reference only says which answers are possible.
TEST(PrefixIndexTest, ClaimsNothingFalseWhileItEvictsAndSweeps) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Forest forest(&random, 200);
    PrefixIndex index(Small(1));
    const size_t empty = index.bytes();
    std::map<BlockName, std::set<WorkerKey>> truth;  // The workers that hold each name.
    for (int i = 0; i < 200; ++i) {
      const WorkerKey worker = 1 + random() % 12;
      const auto path = forest.PathTo(static_cast<int>(random() % 200));
      const uint32_t kind = random() % 10;
      if (kind < 5) {
        AddPrompt(&index, worker, path);
        for (const BlockName& name : path) truth[name].insert(worker);
      } else if (kind < 6) {
        index.Remove(worker, path.back());
        truth[path.back()].erase(worker);
      } else if (kind < 7) {
        index.RemoveWorker(worker);
        for (auto& [name, holders] : truth) holders.erase(worker);
      } else {
        index.Sweep(static_cast<int>(random() % 10));
        const Blocks held = Leading(&index, path);
        for (const auto& [holder, blocks] : held) {
          for (int block = 0; block < blocks; ++block) {
            ASSERT_EQ(truth[path[block]].count(holder), 1u);
          }
        }
      }
      ASSERT_LE(index.bytes(), Small(1).max_bytes);
    }
    for (WorkerKey worker = 1; worker <= 12; ++worker) index.RemoveWorker(worker);
    SweepAll(&index);
    ASSERT_EQ(index.names(), 0u);
    ASSERT_EQ(index.bytes(), empty);
  }
}

}  // namespace
}  // namespace baton
