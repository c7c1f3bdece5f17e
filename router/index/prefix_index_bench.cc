// Measures PrefixIndex with a million names that are held by 8 workers each: memory, look-ups of
// prompts of 512 blocks, and the work that the router does in turns of its event loop. No turn may
// take more than 2 ms. Also measures all work for requests that share nothing.

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>
#include <malloc.h>
#include <time.h>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "router/index/prefix_index.h"
#include "router/index/recent_prompts.h"

namespace baton {
namespace {

constexpr int kPromptBlocks = 512;
constexpr int kPrompts = 1954;  // 1,000,448 names.
constexpr int kHolders = 8;
constexpr int kWorkers = 64;
constexpr size_t kRoomy = size_t{96} << 20;
constexpr size_t kTight = size_t{75} << 20;  // Bytes with room for 1% more names than Fill() adds.
// kBatch is the number of names, and kSweepBudget the number of units of Sweep(), in each turn of
// the event loop.
constexpr size_t kBatch = 500;
constexpr int kSweepBudget = 1000;

// A bijection that scatters its values, so that names look random.
uint64_t Scatter(uint64_t n) {
  n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
  n = (n ^ n >> 27) * 0x94d049bb133111eb;
  return n ^ n >> 31;
}

// Block `block` of a prompt, counted from 0. Block -1 is the parent of the first one.
BlockName Block(uint64_t prompt, int block) {
  if (block < 0) return {};
  const uint64_t n = prompt * kPromptBlocks + block + 1;
  return {Scatter(n), Scatter(~n)};
}

std::vector<BlockName> Prompt(uint64_t prompt) {
  std::vector<BlockName> names;
  for (int i = 0; i < kPromptBlocks; ++i) names.push_back(Block(prompt, i));
  return names;
}

// The changes of a worker that begins to hold all blocks of `prompts` prompts.
std::vector<PrefixIndex::Change> Added(uint64_t first_prompt, int prompts) {
  std::vector<PrefixIndex::Change> changes;
  for (int i = 0; i < prompts * kPromptBlocks; ++i) {
    const uint64_t prompt = first_prompt + i / kPromptBlocks;
    const int block = i % kPromptBlocks;
    changes.push_back({true, Block(prompt, block), Block(prompt, block - 1)});
  }
  return changes;
}

PrefixIndex::Options Options(size_t max_bytes) {
  return {.max_bytes = max_bytes, .max_workers = 1024, .hash_key = 0x1234567};
}

// Fills the index with kPrompts prompts. Each prompt is held by `holders` workers with successive
// keys; key 1 follows key kWorkers. Adds the first block of every prompt, then the second block of
// every prompt, and so on. So the names of each prompt are scattered over the memory.
void Fill(PrefixIndex* index, int holders = kHolders) {
  for (int holder = 0; holder < holders; ++holder) {
    for (int block = 0; block < kPromptBlocks; ++block) {
      for (int i = 0; i < kPrompts; ++i) {
        index->Add(1 + (i + holder) % kWorkers, Block(i, block - 1), Block(i, block));
      }
    }
  }
  BATON_CHECK(index->names() == size_t{kPrompts} * kPromptBlocks && index->evictions() == 0)
      << index->names();
}

double AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

double Microseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

// Measures the CPU time of each call. For the longest call, also measures the time by the clock,
// which other programs on the machine lengthen more than the CPU time.
class Turns {
 public:
  template <typename Call>
  void Time(Call call) {
    const double clock = Microseconds(CLOCK_MONOTONIC);
    const double thread = Microseconds(CLOCK_THREAD_CPUTIME_ID);
    call();
    thread_us_.push_back(Microseconds(CLOCK_THREAD_CPUTIME_ID) - thread);
    longest_by_clock_us_ = std::max(longest_by_clock_us_, Microseconds(CLOCK_MONOTONIC) - clock);
  }
  void Report(benchmark::State* state) {
    std::sort(thread_us_.begin(), thread_us_.end());
    state->counters["turns"] = static_cast<double>(thread_us_.size());
    state->counters["median_us"] = thread_us_[thread_us_.size() / 2];
    state->counters["p99_us"] = thread_us_[thread_us_.size() * 99 / 100];
    state->counters["longest_us"] = thread_us_.back();
    state->counters["longest_by_clock_us"] = longest_by_clock_us_;
  }

 private:
  std::vector<double> thread_us_;
  double longest_by_clock_us_ = 0;
};

// The measured time includes the time for making the names.
void BytesPerName(benchmark::State& state) {
  for (auto _ : state) {
    const double before = AllocatedBytes();
    PrefixIndex index(Options(kRoomy));
    Fill(&index);
    const double names = static_cast<double>(index.names());
    state.counters["bytes_per_name"] = static_cast<double>(index.bytes()) / names;
    state.counters["allocated_per_name"] = (AllocatedBytes() - before) / names;
  }
}
BENCHMARK(BytesPerName)->Unit(benchmark::kMillisecond)->Iterations(1);

void LookUp(benchmark::State& state) {
  PrefixIndex index(Options(kRoomy));
  Fill(&index);
  std::vector<std::vector<BlockName>> prompts;
  for (int i = 0; i < kPrompts; ++i) prompts.push_back(Prompt(i));
  std::shuffle(prompts.begin(), prompts.end(), std::mt19937(1));
  std::vector<HeldBlocks> held;
  size_t next = 0;
  for (auto _ : state) {
    index.LeadingBlocks(prompts[next], &held);
    BATON_CHECK(held.size() == kHolders && held[0].blocks == kPromptBlocks);
    next = next + 1 == prompts.size() ? 0 : next + 1;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(LookUp)->Unit(benchmark::kMicrosecond);

// A prompt of which 1,000 workers hold every block.
void LookUpHeldByThousand(benchmark::State& state) {
  PrefixIndex index(Options(kRoomy));
  const size_t empty = index.bytes();
  for (WorkerKey worker = 1; worker <= 1000; ++worker) index.Apply(worker, Added(0, 1));
  const auto prompt = Prompt(0);
  std::vector<HeldBlocks> held;
  for (auto _ : state) {
    index.LeadingBlocks(prompt, &held);
    BATON_CHECK(held.size() == 1000 && held[0].blocks == kPromptBlocks);
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["bytes_per_name"] = static_cast<double>(index.bytes() - empty) / kPromptBlocks;
}
BENCHMARK(LookUpHeldByThousand)->Unit(benchmark::kMicrosecond);

// A worker that holds 500,000 names attaches. Items are names. The argument is 1 if the names are
// among the million names of the index, and 0 if the index has to evict a name for each.
void Snapshot(benchmark::State& state) {
  const bool known = state.range(0) == 1;
  PrefixIndex index(Options(known ? kRoomy : kTight));
  Fill(&index, kHolders - 1);
  const auto changes = Added(known ? 0 : kPrompts, 500000 / kPromptBlocks);
  Turns turns;
  for (auto _ : state) {
    for (size_t begin = 0; begin < changes.size(); begin += kBatch) {
      const auto batch = absl::MakeSpan(changes).subspan(begin, kBatch);
      turns.Time([&] { index.Apply(1000, batch); });
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(changes.size()));
  turns.Report(&state);
  state.counters["evictions"] = static_cast<double>(index.evictions());
}
BENCHMARK(Snapshot)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->Iterations(1);

// All that the index does for requests that share nothing, while its memory of 64 MiB is full. Each
// request has 128 blocks. It is looked up, and noted for a prefill and a decode worker. Both tell
// that they evicted the blocks of an old request, and that they added those of the new one.
class NothingShared {
 public:
  // The workers keep the blocks of the last `kept` requests.
  explicit NothingShared(int kept) : kept_(kept) {
    while (next_ < 2 * kept_) ServeBatch();
  }

  // Serves kRequests requests. The clock of the processor time is slow, so each kind of work is
  // done for all of them together.
  void ServeBatch() {
    std::vector<Prompt> prompts;
    for (int i = 0; i < kRequests; ++i) {
      prompts.push_back(std::make_shared<const std::vector<BlockName>>(NamesOf(next_ + i)));
    }
    const absl::Time now = absl::UnixEpoch() + next_ * absl::Milliseconds(10);
    batch_us_ = {};
    Time(kLookUp, [&] {
      for (const Prompt& prompt : prompts) {
        index_.LeadingBlocks(*prompt, &held_);
        recent_.Expire(now);
        recent_.Find(*prompt, &held_);
      }
    });
    Tell(1, next_, prompts, now);
    // Meanwhile the decode workers have pulled the KV of the requests before.
    if (!pulled_.empty()) Tell(1 + kWorkersOfAKind, next_ - kRequests, pulled_, now);
    pulled_ = std::move(prompts);
    next_ += kRequests;
    batch_us_[kSum] = std::accumulate(batch_us_.begin(), batch_us_.end(), 0.0);
    for (size_t work = 0; work < us_.size(); ++work) us_[work].push_back(batch_us_[work]);
  }
  void ResetTimes() { us_ = {}; }
  // Reports ns of processor time per block of the prompts: the median of the batches.
  void Report(benchmark::State* state) {
    const char* const names[] = {"1_look_up_ns", "2_note_ns", "3_added_ns", "4_removed_ns",
                                 "5_sum_ns"};
    for (size_t work = 0; work < us_.size(); ++work) {
      const auto middle = us_[work].begin() + static_cast<long>(us_[work].size() / 2);
      std::nth_element(us_[work].begin(), middle, us_[work].end());
      state->counters[names[work]] = 1e3 * *middle / (kRequests * kBlocks);
    }
    state->counters["names"] = static_cast<double>(index_.names());
    state->counters["evictions"] = static_cast<double>(index_.evictions());
    state->counters["dropped"] = static_cast<double>(index_.dropped() + recent_.dropped());
  }

 private:
  using Prompt = std::shared_ptr<const std::vector<BlockName>>;
  using Changes = std::vector<PrefixIndex::Change>;
  enum Work { kLookUp, kNote, kAdded, kRemoved, kSum, kWorks };
  static constexpr int kBlocks = 128, kRequests = 16, kWorkersOfAKind = 8;

  template <typename Call>
  void Time(Work work, Call call) {
    const double begin = Microseconds(CLOCK_THREAD_CPUTIME_ID);
    call();
    batch_us_[work] += Microseconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  }
  static std::vector<BlockName> NamesOf(int request) {
    std::vector<BlockName> names;
    for (int i = 0; i < kBlocks; ++i) names.push_back(Block(static_cast<uint64_t>(request), i));
    return names;
  }
  // Workers get one request each, in turns. A worker tells that it evicted an old request, from the
  // last block to the first, and added the blocks of the new one.
  void Tell(WorkerKey first_worker, int first_request, const std::vector<Prompt>& prompts,
            absl::Time now) {
    std::vector<Changes> removed(kRequests), added(kRequests);
    for (int i = 0; i < kRequests; ++i) {
      const std::vector<BlockName> old = NamesOf(first_request + i - kept_), &names = *prompts[i];
      for (int block = kBlocks; block-- > 0;) removed[i].push_back({false, old[block], {}});
      for (int block = 0; block < kBlocks; ++block) {
        added[i].push_back({true, names[block], block > 0 ? names[block - 1] : BlockName{}});
      }
    }
    const auto worker = [&](int i) { return first_worker + i % kWorkersOfAKind; };
    Time(kNote, [&] {
      for (int i = 0; i < kRequests; ++i) {
        recent_.Note(worker(i), *prompts[i], now + absl::Seconds(5));
      }
    });
    Time(kRemoved, [&] {
      for (int i = 0; i < kRequests; ++i) index_.Apply(worker(i), removed[i]);
    });
    Time(kAdded, [&] {
      for (int i = 0; i < kRequests; ++i) index_.Apply(worker(i), added[i]);
    });
  }

  const int kept_;
  int next_ = 0;
  PrefixIndex index_{Options(size_t{60} << 20)};
  RecentPrompts recent_{size_t{4} << 20, 0x1234567};
  std::vector<HeldBlocks> held_;
  std::vector<Prompt> pulled_;
  std::array<double, kWorks> batch_us_ = {};
  std::array<std::vector<double>, kWorks> us_;
};

// The argument is 1 if the index has room for all names that the workers keep, and 0 if they keep
// twice as many: the index then evicts a name for each new one.
void RequestsThatShareNothing(benchmark::State& state) {
  NothingShared requests(state.range(0) == 1 ? 5600 : 11200);
  requests.ResetTimes();
  for (auto _ : state) requests.ServeBatch();
  requests.Report(&state);
}
BENCHMARK(RequestsThatShareNothing)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->Iterations(500);

// A worker that holds 500,000 of the million names goes. The argument is the number of other
// workers that go with it.
void RemoveAndSweep(benchmark::State& state) {
  PrefixIndex index(Options(kRoomy));
  Fill(&index, kHolders - 1);
  index.Apply(1000, Added(0, 500000 / kPromptBlocks));
  Turns turns;
  for (auto _ : state) {
    index.RemoveWorker(1000);
    for (int i = 0; i < state.range(0); ++i) index.RemoveWorker(1 + i);
    for (bool more = true; more;) {
      turns.Time([&] { more = index.Sweep(kSweepBudget); });
    }
  }
  turns.Report(&state);
  state.counters["names_left"] = static_cast<double>(index.names());
}
BENCHMARK(RemoveAndSweep)->Arg(0)->Arg(kWorkers)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
