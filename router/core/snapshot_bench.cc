// Measures the turns of the router's core while a worker tells all the blocks that it keeps: the
// whole turn, as the router's loop runs it. No turn may take more than 2 ms.

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <time.h>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/rpc/limits.h"
#include "router/testing/core_harness.h"

namespace baton {
namespace {

constexpr uint64_t kNames = 500'000;

double ThreadMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

// Returns a message with the worker's blocks `after` to `last`. They continue one sequence.
v1::CacheChanges Message(uint64_t worker, uint64_t after, uint64_t last) {
  const auto add = [worker](uint64_t block, std::string* to) {
    const uint64_t number[] = {worker, block};
    const uint64_t name[] = {Hash64(number, sizeof(number)), Hash64(number, sizeof(number), 1)};
    to->append(reinterpret_cast<const char*>(name), sizeof(name));
  };
  v1::CacheChanges changes;
  changes.set_after(after);
  changes.set_last(last);
  v1::CacheRun* run = changes.add_added();
  if (after > 0) add(after - 1, run->mutable_parent());
  for (uint64_t block = after; block < last; ++block) add(block, run->mutable_names());
  return changes;
}

// Sends all the worker's blocks to the core. Each message comes when the one before was taken, as
// on a stream. Adds the processor time of every turn to `turns`, in microseconds.
void Snapshot(CoreHarness* h, AttachKey attach, std::vector<double>* turns) {
  const auto turn = [&](v1::CacheChanges* message) {
    const double begin = ThreadMicroseconds();
    if (message != nullptr) h->core.Handle(WorkerCached{attach, std::move(*message)}, h->now);
    h->core.RunOnce(h->now);
    const std::vector<CoreAction> actions = h->core.TakeActions();
    turns->push_back(ThreadMicroseconds() - begin);
    return std::any_of(actions.begin(), actions.end(), [](const CoreAction& action) {
      return std::holds_alternative<ReportTaken>(action);
    });
  };
  for (uint64_t after = 0; after < kNames; after += kMaxCacheChanges) {
    v1::CacheChanges message = Message(attach, after, std::min(kNames, after + kMaxCacheChanges));
    for (bool taken = turn(&message); !taken;) taken = turn(nullptr);
  }
}

// state.range(0): number of workers whose snapshots come before. The index has room for one and a
// half of these snapshots, so from the second one on each name evicts another.
void TurnsDuringASnapshot(benchmark::State& state) {
  SetLogLevel(Severity::kError);
  std::vector<double> turns;
  for (auto _ : state) {
    RouterCoreOptions options = CoreHarness::Options();
    options.prefix_index_bytes = size_t{64} << 20;
    CoreHarness h(options);
    for (int64_t worker = 0; worker <= state.range(0); ++worker) {
      v1::Registration registration =
          CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, absl::StrCat("d", worker, ":1"),
                                static_cast<WorkerEpoch>(worker) + 1);
      registration.set_prefix_cache(true);
      registration.set_total_blocks(kNames);
      const AttachKey attach = h.Attach(registration);
      turns.clear();
      Snapshot(&h, attach, &turns);
    }
  }
  std::sort(turns.begin(), turns.end());
  state.counters["turns"] = static_cast<double>(turns.size());
  state.counters["median_us"] = turns[turns.size() / 2];
  state.counters["longest_us"] = turns.back();
}
BENCHMARK(TurnsDuringASnapshot)->Arg(0)->Arg(3)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
