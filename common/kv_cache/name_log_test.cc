#include "common/kv_cache/name_log.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

BlockName Named(uint64_t n) { return {n, n}; }

// Knows the names of a cache from the changes that its log told.
class Reader {
 public:
  // Reads the next changes, at most `max`. Returns false if there are none.
  bool Read(NameLog* log, size_t max) {
    const uint64_t known = cursor_.last;
    const std::optional<NameChanges> changes = log->Next(&cursor_, max);
    if (!changes) return false;
    EXPECT_TRUE(changes->after == known || changes->after == 0);
    EXPECT_LE(changes->added.size() + changes->removed.size(), max);
    if (changes->after == 0) {
      names.clear();
      ++begun;
    }
    for (const BlockName& name : changes->removed) names.erase(name);
    for (const NameChanges::Addition& one : changes->added) {
      EXPECT_TRUE(one.parent == BlockName() || names.contains(one.parent));
      names[one.name] = one.parent;
    }
    EXPECT_EQ(changes->last, cursor_.last);
    return true;
  }

  std::map<BlockName, BlockName> names;
  int begun = 0;  // times that the changes began anew

 private:
  NameLog::Cursor cursor_;
};

// Returns what a reader is told that knows the changes up to `last`.
std::optional<NameChanges> After(NameLog* log, uint64_t last) {
  NameLog::Cursor cursor{.last = last, .begun = last};
  return log->Next(&cursor, 10);
}

TEST(NameLogTest, TellsWhatFollowsANumber) {
  NameLog log(8);
  EXPECT_FALSE(After(&log, 0));
  const uint64_t first = log.Add(Named(1), {});
  const uint64_t second = log.Add(Named(2), Named(1));
  std::optional<NameChanges> changes = After(&log, first);
  ASSERT_TRUE(changes);
  EXPECT_EQ(changes->after, first);
  EXPECT_EQ(changes->last, second);
  EXPECT_THAT(changes->added, ElementsAre(NameChanges::Addition{Named(2), Named(1)}));
  EXPECT_THAT(changes->removed, IsEmpty());
  log.Remove(second, Named(2));
  changes = After(&log, second);
  ASSERT_TRUE(changes);
  EXPECT_THAT(changes->removed, ElementsAre(Named(2)));
  EXPECT_EQ(changes->last, log.last());
  EXPECT_FALSE(After(&log, log.last()));
}

TEST(NameLogTest, AReaderThatMissedRemovalsBeginsAnew) {
  NameLog log(2);
  const uint64_t kept = log.Add(Named(9), {});
  for (int i = 0; i < 3; ++i) log.Remove(log.Add(Named(1), {}), Named(1));
  std::optional<NameChanges> changes = After(&log, kept);
  ASSERT_TRUE(changes);
  EXPECT_EQ(changes->after, 0u);
  EXPECT_THAT(changes->added, ElementsAre(NameChanges::Addition{Named(9), BlockName()}));
  EXPECT_EQ(changes->last, log.last());
  // The last two removals are known, so a reader that has missed only these goes on.
  changes = After(&log, log.last() - 3);
  ASSERT_TRUE(changes);
  EXPECT_EQ(changes->after, log.last() - 3);
}

TEST(NameLogTest, AnEmptyCacheIsTold) {
  NameLog log(1);
  for (int i = 0; i < 3; ++i) log.Remove(log.Add(Named(1), {}), Named(1));
  const std::optional<NameChanges> changes = After(&log, 1);
  ASSERT_TRUE(changes);
  EXPECT_EQ(changes->after, 0u);
  EXPECT_EQ(changes->last, log.last());
  EXPECT_THAT(changes->added, IsEmpty());
}

TEST(NameLogTest, AReaderThatIsToldAllNamesNeedsNoOlderRemovals) {
  NameLog log(1);
  for (uint64_t n = 1; n <= 3; ++n) log.Add(Named(n), {});
  for (uint64_t n = 4; n <= 6; ++n) log.Remove(log.Add(Named(n), {}), Named(n));
  Reader reader;
  while (reader.Read(&log, 1)) {
  }
  EXPECT_EQ(reader.names.size(), 3u);
  EXPECT_EQ(reader.begun, 1);
}

TEST(NameLogTest, CallsOnceAfterEachRead) {
  NameLog log(8);
  int calls = 0;
  log.set_on_change([&calls] { ++calls; });
  log.Add(Named(1), {});
  log.Add(Named(2), {});
  EXPECT_EQ(calls, 1);
  After(&log, 0);
  EXPECT_EQ(calls, 1);
  log.Add(Named(3), {});
  EXPECT_EQ(calls, 2);
}

TEST(NameLogTest, TellsTheTimeOfTheOldestChange) {
  NameLog log(8);
  const absl::Time start = absl::UnixEpoch();
  for (int turn = 0; turn < 3; ++turn) {
    log.BeginTurn(start + absl::Seconds(turn));
    log.Add(Named(static_cast<uint64_t>(turn) * 2), {});
    log.Add(Named(static_cast<uint64_t>(turn) * 2 + 1), {});
  }
  EXPECT_EQ(After(&log, 0)->since, absl::InfiniteFuture());
  EXPECT_EQ(After(&log, 1)->since, start);
  EXPECT_EQ(After(&log, 2)->since, start + absl::Seconds(1));
  EXPECT_EQ(After(&log, 5)->since, start + absl::Seconds(2));
}

TEST(NameLogTest, ReadersOfEverySpeedKnowTheNames) {
  std::mt19937_64 random(1);
  for (int history = 0; history < 200; ++history) {
    NameLog log(1 + random() % 30);
    struct Held {
      BlockName name, parent;
      uint64_t number = 0;
      int children = 0;
    };
    std::map<BlockName, Held> cache;
    std::vector<Reader> readers(3);
    for (int step = 0; step < 300; ++step) {
      // Adds a name below a random one, or removes one without children.
      if (random() % 5 < 3) {
        Held added{.name = Named(1 + random() % 50)};
        if (!cache.empty() && random() % 4 > 0) {
          added.parent =
              std::next(cache.begin(), static_cast<long>(random() % cache.size()))->first;
        }
        if (cache.contains(added.name)) continue;
        added.number = log.Add(added.name, added.parent);
        if (added.parent != BlockName()) ++cache.at(added.parent).children;
        cache[added.name] = added;
      } else if (!cache.empty()) {
        const Held held =
            std::next(cache.begin(), static_cast<long>(random() % cache.size()))->second;
        if (held.children > 0) continue;
        log.Remove(held.number, held.name);
        if (held.parent != BlockName()) --cache.at(held.parent).children;
        cache.erase(held.name);
      }
      for (size_t i = 0; i < readers.size(); ++i) {
        if (random() % (1 + 20 * i) == 0) readers[i].Read(&log, 1 + random() % 8);
      }
    }
    std::map<BlockName, BlockName> expected;
    for (const auto& [name, held] : cache) expected[name] = held.parent;
    for (Reader& reader : readers) {
      while (reader.Read(&log, 3)) {
      }
      EXPECT_EQ(reader.names, expected);
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace baton
