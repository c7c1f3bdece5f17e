#include "router/index/recent_prompts.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <malloc.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using testing::IsEmpty;
using Blocks = std::map<WorkerKey, int>;
using NameList = std::vector<BlockName>;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr size_t kRoomy = size_t{1} << 20;

absl::Time At(int seconds) { return kStart + absl::Seconds(seconds); }

// The names of `blocks` blocks that follow `before`. Like real names, each one depends on all names
// before it. `number` tells prompts apart that have the same beginning.
NameList Continued(NameList before, uint64_t number, size_t blocks) {
  BlockName last = before.empty() ? BlockName{1, 1} : before.back();
  for (size_t i = 0; i < blocks; ++i) {
    last.low = (last.low ^ number) * 0x9e3779b97f4a7c15 + 3;
    last.high = (last.high + last.low) * 0xd1342543de82ef95 + 7;
    before.push_back(last);
  }
  return before;
}
NameList NewPrompt(uint64_t number, size_t blocks) { return Continued({}, number, blocks); }

void Note(RecentPrompts* recent, WorkerKey worker, const NameList& names, absl::Time until) {
  recent->Note(worker, names, until);
}

Blocks Found(const RecentPrompts& recent, const NameList& prompt) {
  std::vector<HeldBlocks> held;
  recent.Find(prompt, &held);
  Blocks blocks;
  for (const HeldBlocks& one : held) {
    EXPECT_GT(one.blocks, 0);
    EXPECT_TRUE(blocks.emplace(one.worker, one.blocks).second) << one.worker << " twice";
  }
  return blocks;
}

TEST(RecentPromptsTest, FindsTheLargestNumberOfLeadingBlocksOfEachWorker) {
  RecentPrompts recent(kRoomy, 0);
  const NameList system = NewPrompt(1, 37);
  const NameList a = Continued(system, 2, 63), b = Continued(a, 3, 1000);
  Note(&recent, 1, system, At(5));
  Note(&recent, 2, a, At(5));
  Note(&recent, 3, b, At(5));
  Note(&recent, 3, NewPrompt(4, 10), At(5));
  Note(&recent, 1, Continued(system, 5, 3), At(5));
  EXPECT_EQ(Found(recent, b), (Blocks{{1, 37}, {2, 100}, {3, 1100}}));
  EXPECT_EQ(Found(recent, Continued(b, 6, 7)), (Blocks{{1, 37}, {2, 100}, {3, 1100}}));
  EXPECT_EQ(Found(recent, Continued(a, 6, 7)), (Blocks{{1, 37}, {2, 100}, {3, 100}}));
  EXPECT_EQ(Found(recent, Continued(system, 5, 2)), (Blocks{{1, 39}, {2, 37}, {3, 37}}));
  EXPECT_EQ(Found(recent, {b[0]}), (Blocks{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_THAT(Found(recent, NewPrompt(7, 200)), IsEmpty());
  EXPECT_THAT(Found(recent, {}), IsEmpty());
}

// Compares two prompts for each number of blocks that they may share.
TEST(RecentPromptsTest, EveryNumberOfSharedBlocksIsFound) {
  for (size_t shared = 0; shared <= 70; ++shared) {
    RecentPrompts recent(kRoomy, shared);
    const NameList beginning = NewPrompt(1, shared);
    Note(&recent, 1, Continued(beginning, 2, 70 - shared), At(5));
    for (const size_t more : {0, 1, 30}) {
      const Blocks found = Found(recent, Continued(beginning, 3, more));
      EXPECT_EQ(found, shared > 0 ? (Blocks{{1, static_cast<int>(shared)}}) : Blocks());
    }
  }
}

TEST(RecentPromptsTest, AnEntryEndsAtItsTimeAndNotBeforeAnOlderOne) {
  RecentPrompts recent(kRoomy, 0);
  const NameList a = NewPrompt(1, 10), b = NewPrompt(2, 10), c = NewPrompt(3, 10);
  Note(&recent, 1, a, At(5));
  Note(&recent, 2, b, At(3));
  Note(&recent, 3, c, At(6));
  recent.Expire(At(5) - absl::Nanoseconds(1));
  EXPECT_EQ(recent.entries(), 3u);
  EXPECT_EQ(Found(recent, b), (Blocks{{2, 10}}));
  recent.Expire(At(5));
  EXPECT_THAT(Found(recent, a), IsEmpty());
  EXPECT_THAT(Found(recent, b), IsEmpty());
  EXPECT_EQ(Found(recent, c), (Blocks{{3, 10}}));
  recent.Expire(At(6));
  EXPECT_EQ(recent.entries(), 0u);
  EXPECT_EQ(recent.dropped(), 0u);
}

TEST(RecentPromptsTest, APromptThatTheWorkerGotAlreadyAddsNothing) {
  RecentPrompts recent(kRoomy, 0);
  const NameList prompt = NewPrompt(1, 10);
  Note(&recent, 1, prompt, At(5));
  Note(&recent, 1, prompt, At(6));
  EXPECT_EQ(recent.entries(), 1u);
  // These prompts differ from the first one only in their length or in their last name.
  Note(&recent, 1, Continued(prompt, 2, 1), At(6));
  Note(&recent, 1, Continued(NewPrompt(1, 9), 3, 1), At(6));
  Note(&recent, 1, NewPrompt(1, 9), At(6));
  EXPECT_EQ(recent.entries(), 4u);
  recent.Expire(At(5));
  EXPECT_EQ(recent.entries(), 3u);
  Note(&recent, 1, prompt, At(10));
  EXPECT_EQ(recent.entries(), 4u);
  Note(&recent, 1, {}, At(10));
  EXPECT_EQ(recent.entries(), 4u);
}

TEST(RecentPromptsTest, OnlyTheLatestEntriesAreListedUnderAName) {
  RecentPrompts recent(kRoomy, 0);
  const NameList system = NewPrompt(1, 6);
  for (WorkerKey worker = 1; worker <= 20; ++worker) {
    Note(&recent, worker, Continued(system, worker, 10), At(5));
  }
  const Blocks found = Found(recent, Continued(system, 99, 10));
  ASSERT_EQ(found.size(), RecentPrompts::kPerName);
  for (const auto& [worker, blocks] : found) {
    EXPECT_GT(worker, 20 - RecentPrompts::kPerName);
    EXPECT_EQ(blocks, 6);
  }
  // The 8th name is another one in each prompt, so each prompt is found under it.
  Blocks expected = found;
  expected[1] = 16;
  EXPECT_EQ(Found(recent, Continued(system, 1, 10)), expected);
}

TEST(RecentPromptsTest, TheOldestEntriesEndEarlyWhenMemoryIsShort) {
  RecentPrompts recent(64 << 10, 0);
  for (int i = 0; i < 1000; ++i) Note(&recent, 1, NewPrompt(i, 200), At(5));
  EXPECT_EQ(recent.entries(), (48u << 10) / 3200);  // NameList have three quarters of the memory.
  EXPECT_EQ(recent.entries() + recent.dropped(), 1000u);
  const int first_kept = static_cast<int>(recent.dropped());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Found(recent, NewPrompt(i, 200)).size(), i < first_kept ? 0u : 1u) << i;
  }
}

// Here the names take little memory, but the entries are listed under many names.
TEST(RecentPromptsTest, TheOldestEntriesEndEarlyWhenThereAreTooManyNames) {
  RecentPrompts recent(64 << 10, 0);
  for (int i = 0; i < 10000; ++i) Note(&recent, 1, NewPrompt(i, 1), At(5));
  EXPECT_EQ(recent.entries() + recent.dropped(), 10000u);
  EXPECT_GT(recent.entries(), 100u);
  const int first_kept = static_cast<int>(recent.dropped());
  for (int i = 0; i < 10000; ++i) {
    EXPECT_EQ(Found(recent, NewPrompt(i, 1)).size(), i < first_kept ? 0u : 1u) << i;
  }
}

TEST(RecentPromptsTest, APromptLargerThanTheMemoryIsDropped) {
  RecentPrompts recent(RecentPrompts::kMinBytes, 0);
  Note(&recent, 1, NewPrompt(1, 400), At(5));
  Note(&recent, 1, NewPrompt(2, 1024), At(5));
  EXPECT_EQ(recent.dropped(), 1u);
  EXPECT_EQ(recent.entries(), 1u);
  // This prompt fits, but not beside the first one.
  Note(&recent, 1, NewPrompt(3, 400), At(5));
  EXPECT_EQ(recent.dropped(), 2u);
  EXPECT_EQ(recent.entries(), 1u);
  EXPECT_EQ(Found(recent, NewPrompt(3, 400)), (Blocks{{1, 400}}));
}

// Compares bytes(), the memory that the object says it uses, with the memory that it has allocated.
TEST(RecentPromptsTest, BytesAreWhatWasAllocated) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the allocators of the sanitizers have no mallinfo2";
#endif
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = allocated();
  RecentPrompts recent(4 << 20, 0);
  const double at_start = allocated();
  EXPECT_NEAR((at_start - before) / static_cast<double>(recent.bytes()), 1, 0.02);
  EXPECT_LE(recent.bytes(), size_t{4} << 20);
  EXPECT_GT(recent.bytes(), (size_t{4} << 20) - 200);
  std::vector<NameList> prompts;
  for (int i = 0; i < 1500; ++i) prompts.push_back(NewPrompt(i, 300));
  const double before_notes = allocated();
  for (const NameList& prompt : prompts) recent.Note(1, prompt, At(5));
  EXPECT_GT(recent.dropped(), 100u);
  EXPECT_EQ(allocated(), before_notes);
}

// --- Random histories, compared with a reference implementation -------------------------------

// RecentReference implementation of RecentPrompts: compares a prompt with all entries, name by
// name. It does not know when memory is short: it is told how many entries ended early.
class RecentReference {
 public:
  void Note(WorkerKey worker, const NameList& prompt, absl::Time until, uint64_t ended_early) {
    const bool is_known = [&] {
      for (const Entry* entry : Listed(prompt, std::bit_floor(prompt.size()))) {
        if (entry->worker == worker && entry->prompt == prompt) return true;
      }
      return false;
    }();
    if (is_known) {
      EXPECT_EQ(ended_early, 0u);
      return;
    }
    if (!entries_.empty()) until = std::max(until, entries_.back().until);
    ASSERT_LE(ended_early, entries_.size());
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<long>(ended_early));
    entries_.push_back({worker, prompt, until});
  }
  void Expire(absl::Time now) {
    while (!entries_.empty() && entries_.front().until <= now) entries_.pop_front();
  }
  Blocks Find(const NameList& prompt) const {
    Blocks blocks;
    for (size_t depth = 1; depth <= prompt.size(); depth *= 2) {
      for (const Entry* entry : Listed(prompt, depth)) {
        int& max = blocks[entry->worker];
        max = std::max(max, static_cast<int>(Shared(entry->prompt, prompt)));
      }
    }
    return blocks;
  }
  size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    WorkerKey worker;
    NameList prompt;
    absl::Time until;
  };
  static size_t Shared(const NameList& a, const NameList& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  // The latest entries that share the first `depth` names with the prompt.
  std::vector<const Entry*> Listed(const NameList& prompt, size_t depth) const {
    std::vector<const Entry*> listed;
    for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
      if (listed.size() == RecentPrompts::kPerName) break;
      const bool is_there =
          it->prompt.size() >= depth &&
          std::equal(prompt.begin(), prompt.begin() + static_cast<long>(depth), it->prompt.begin());
      if (is_there) listed.push_back(&*it);
    }
    return listed;
  }

  std::deque<Entry> entries_;
};

void RunHistory(uint32_t seed, size_t max_bytes, uint64_t* dropped, uint64_t* max_found) {
  std::mt19937 random(seed);
  const auto number = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
  // Prompts that have beginnings in common.
  std::vector<NameList> prompts = {{}};
  const uint32_t longest = seed % 2 == 0 ? 12 : 60;
  for (int i = 0; i < 60; ++i) {
    NameList beginning = prompts[number(static_cast<uint32_t>(prompts.size()))];
    beginning.resize(beginning.size() - number(static_cast<uint32_t>(beginning.size()) + 1) / 2);
    if (beginning.size() > 300) beginning.resize(300);  // Every prompt must fit into the memory.
    prompts.push_back(Continued(std::move(beginning), 1 + number(3), 1 + number(longest)));
  }
  prompts.erase(prompts.begin());

  RecentPrompts recent(max_bytes, seed);
  RecentReference reference;
  absl::Time now = kStart;
  for (int step = 0; step < 400; ++step) {
    const NameList& prompt = prompts[number(static_cast<uint32_t>(prompts.size()))];
    const uint32_t kind = number(100);
    if (kind < 50) {
      const WorkerKey worker = 1 + number(seed % 3 == 0 ? 3 : 20);
      const absl::Time until = now + absl::Milliseconds(500 + number(100));
      const uint64_t before = recent.dropped();
      Note(&recent, worker, prompt, until);
      reference.Note(worker, prompt, until, recent.dropped() - before);
    } else if (kind < 90) {
      NameList asked = prompt;
      asked.resize(1 + number(static_cast<uint32_t>(asked.size())));
      if (number(2) == 0) asked = Continued(std::move(asked), 1 + number(3), number(10));
      const Blocks found = Found(recent, asked);
      ASSERT_EQ(found, reference.Find(asked));
      *max_found = std::max<uint64_t>(*max_found, found.size());
    } else {
      now += absl::Milliseconds(number(100));
      recent.Expire(now);
      reference.Expire(now);
    }
    ASSERT_EQ(recent.entries(), reference.entries());
  }
  *dropped += recent.dropped();
  recent.Expire(now + absl::Seconds(1));
  ASSERT_EQ(recent.entries(), 0u);
}

TEST(RecentPromptsTest, AgreesWithTheReference) {
  uint64_t dropped = 0, max_found = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RunHistory(seed, kRoomy, &dropped, &max_found);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_EQ(dropped, 0u);
  EXPECT_GT(max_found, RecentPrompts::kPerName);
}

TEST(RecentPromptsTest, AgreesWithTheReferenceWhileMemoryIsShort) {
  uint64_t dropped = 0, max_found = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RunHistory(seed, RecentPrompts::kMinBytes, &dropped, &max_found);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(dropped, 1000u);
}

}  // namespace
}  // namespace baton
