// Measures the cost of emulation, per operation of a thread and for whole kernels. Built twice:
// with plain and with checked kernels.

#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/testing/bench_kernels.h"
#include "kernels/device/simt/testing/sample_kernels.h"

namespace baton::simt {
namespace {

using emulated_kernels::RepeatParams;

void Launch(const Kernel& kernel, const LaunchShape& shape, const void* params) {
  const absl::Status status = RunGrid(kernel, shape, params, {});
  BATON_CHECK(status.ok()) << status;
}

// Measures `times` operations per thread of one launch. An item is one operation of one thread. The
// case `launch` has no operations and measures the launch itself.
void Operation(benchmark::State& state, RepeatParams::Operation operation, int times) {
  alignas(16) const char in[16] = {};
  std::vector<float> out(1024);
  const int threads = static_cast<int>(state.range(0));
  const RepeatParams params{operation, times, in, out.data()};
  for (auto _ : state) Launch(emulated_kernels::kRepeat, {.threads = threads}, &params);
  state.SetItemsProcessed(state.iterations() * threads * times);
}
BENCHMARK_CAPTURE(Operation, launch, RepeatParams::kNothing, 0)->Arg(32)->Arg(128)->Arg(1024);
BENCHMARK_CAPTURE(Operation, SyncThreads, RepeatParams::kSyncThreads, 100)
    ->Arg(32)
    ->Arg(128)
    ->Arg(1024);
BENCHMARK_CAPTURE(Operation, SyncWarp, RepeatParams::kSyncWarp, 100)->Arg(128);
BENCHMARK_CAPTURE(Operation, ShuffleXor, RepeatParams::kShuffleXor, 100)->Arg(128);
BENCHMARK_CAPTURE(Operation, WarpSum, RepeatParams::kWarpSum, 100)->Arg(128);
BENCHMARK_CAPTURE(Operation, Mma, RepeatParams::kMma, 100)->Arg(128);
BENCHMARK_CAPTURE(Operation, CopyAsync16, RepeatParams::kCopy, 100)->Arg(128);

void Normalize8x2048(benchmark::State& state) {
  std::vector<float> in(8 * 2048, 1), out(in.size()), largest(8);
  const emulated_kernels::NormalizeParams params{in.data(), out.data(), largest.data(), 2048};
  for (auto _ : state) {
    Launch(emulated_kernels::kNormalize,
           {.grid_x = 8, .threads = emulated_kernels::kNormalizeThreads}, &params);
  }
}
BENCHMARK(Normalize8x2048)->Unit(benchmark::kMillisecond);

struct alignas(16) Chunk {
  uint16_t bf16[8] = {};
};

void Gemm64x256x256(benchmark::State& state) {
  std::vector<Chunk> a(64 * 256 / 8), b(256 * 256 / 8);
  std::vector<float> out(64 * 256);
  const emulated_kernels::TileGemmParams params{a.data(), b.data(), out.data(), 64, 256, 256};
  for (auto _ : state) {
    Launch(emulated_kernels::kTileGemm,
           {.grid_x = 256 / emulated_kernels::kGemmColumns,
            .threads = emulated_kernels::kGemmThreads,
            .shared_bytes = emulated_kernels::kGemmSharedBytes},
           &params);
  }
}
BENCHMARK(Gemm64x256x256)->Unit(benchmark::kMillisecond);

void Attention4x512Tokens8Heads(benchmark::State& state) {
  using Params = emulated_kernels::SplitAttentionParams;
  constexpr int kSequences = 4, kHeads = 8, kSplits = 2, kPages = 512 / Params::kPageTokens;
  constexpr int kChunks = Params::kPageTokens * Params::kHeadDim / 8;
  std::vector<float> query(kSequences * kHeads * Params::kHeadDim), out(query.size()),
      partial(kSequences * kHeads * kSplits * (Params::kHeadDim + 2));
  std::vector<Chunk> keys(kPages * kHeads * kChunks), values(keys.size());
  std::vector<int> table(kSequences * kPages), lengths(kSequences, 512);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i) % kPages;
  const Params params{query.data(),   keys.data(), values.data(), table.data(), lengths.data(),
                      partial.data(), out.data(),  kHeads,        kPages,       kSplits};
  for (auto _ : state) {
    Launch(emulated_kernels::kSplitAttention,
           {.grid_x = kSplits, .grid_y = kHeads, .grid_z = kSequences, .threads = 128}, &params);
    Launch(emulated_kernels::kMergeSplits, {.grid_x = kHeads, .grid_y = kSequences, .threads = 32},
           &params);
  }
}
BENCHMARK(Attention4x512Tokens8Heads)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton::simt

BENCHMARK_MAIN();
