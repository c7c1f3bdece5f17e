// Rates of the CPU backend, as shares of what the machine reaches in the same run. `of_read` is the
// rate at which a kernel reads, divided by that of a plain read of memory. `of_peak` is its rate of
// arithmetic, divided by that of fused multiply-adds on registers. Compare shares, not rates: the
// speed of a machine drifts, and other programs disturb it. The plain read and the multiply-adds
// are measured again at the end.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/yardsticks.h"

namespace baton {
namespace {

struct Machine {
  double read, fma;
};
const Machine& Yardsticks(int threads) {
  static Machine machines[65];
  Machine& machine = machines[threads];
  if (machine.read == 0) machine = {ReadRate(threads), FmaRate(threads)};
  return machine;
}

void Report(benchmark::State& state, int threads, double bytes, double operations) {
  const double runs = static_cast<double>(state.iterations());
  using Counter = benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * runs / 1e9, Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(operations * runs / 1e9, Counter::kIsRate);
  state.counters["of_read"] = Counter(bytes * runs / Yardsticks(threads).read, Counter::kIsRate);
  state.counters["of_peak"] =
      Counter(operations * runs / Yardsticks(threads).fma, Counter::kIsRate);
}

// The GEMM multiplies by one copy of a weight after the other. There are so many copies that each
// GEMM reads its weight from memory, as with the many layers of a model.
void BM_Gemm(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0)), m = static_cast<int>(state.range(1)),
            n = static_cast<int>(state.range(2)), k = static_cast<int>(state.range(3));
  const DType type = static_cast<DType>(state.range(4));
  using Isa = CpuBackendOptions::Isa;
  struct Path {
    const char* name;
    Isa isa;
    CpuNumerics numerics;
  };
  const Path paths[] = {{"f32", Isa::kAuto, CpuNumerics::kF32},
                        {"f32 by avx2", Isa::kAvx2, CpuNumerics::kF32},
                        {"amx", Isa::kAuto, CpuNumerics::kAmx},
                        {"amx by avx512", Isa::kAvx512, CpuNumerics::kAmx},
                        {"amx by avx2", Isa::kAvx2, CpuNumerics::kAmx},
                        {"avx512-bf16", Isa::kAuto, CpuNumerics::kAvx512Bf16}};
  const Path& path = paths[state.range(5)];
  state.SetLabel(path.name);
  auto created = CreateCpuBackend({threads, path.isa, path.numerics});
  if (!created.ok()) return state.SkipWithError(std::string(created.status().message()).c_str());
  const auto backend = *std::move(created);
  const Tensor in = backend->Allocate(m, k).value(), out = backend->Allocate(m, n).value();
  for (int row = 0; row < m; ++row) {
    std::fill_n(static_cast<float*>(in.data) + static_cast<size_t>(row) * in.stride, k, 0.5f);
  }
  const size_t bytes = static_cast<size_t>(n) * k * DTypeBytes(type);
  const int copies = static_cast<int>(std::clamp<size_t>((256u << 20) / bytes, 1, 64));
  std::vector<uint16_t> weights(copies * bytes / 2, 0x3c01);
  int copy = 0;
  for (auto _ : state) {
    const Matrix weight{reinterpret_cast<std::byte*>(weights.data()) + copy * bytes, FormatOf(type),
                        n, k};
    if (!backend->Gemm({in, weight, {}, false, out}).ok()) state.SkipWithError("gemm");
    copy = (copy + 1) % copies;
  }
  Report(state, threads, static_cast<double>(bytes), 2.0 * m * n * k);
}

// Attention of the last `rows` of `context` positions, for each of `batch` sequences.
void BM_Attention(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0)), batch = static_cast<int>(state.range(1)),
            rows = static_cast<int>(state.range(2)), context = static_cast<int>(state.range(3));
  const int kv_heads = 8, group = static_cast<int>(state.range(4)), head_dim = 64;
  auto backend = CreateCpuBackend({threads}).value();
  const KvLayout layout{1, kv_heads, head_dim, 16, DType::kBF16};
  const int blocks = layout.BlocksFor(context);
  std::vector<uint16_t> pool(layout.BlockBytes() * blocks * batch / 2);
  std::mt19937 random(1);
  for (uint16_t& value : pool) value = 0x3c00 + random() % 0x300;
  std::vector<BlockId> order(static_cast<size_t>(blocks) * batch);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const int cols = kv_heads * group * head_dim;
  const Tensor q = backend->Allocate(batch * rows, cols).value(),
               out = backend->Allocate(batch * rows, cols).value();
  for (int row = 0; row < q.rows; ++row) {
    for (int i = 0; i < cols; ++i) {
      static_cast<float*>(q.data)[static_cast<size_t>(row) * q.stride + i] =
          static_cast<float>(random() % 1000) / 1000;
    }
  }
  std::vector<SequenceRows> sequences;
  for (int i = 0; i < batch; ++i) {
    sequences.push_back(
        {i * rows, rows, context - rows,
         absl::MakeConstSpan(order).subspan(static_cast<size_t>(i) * blocks, blocks)});
  }
  const KvView kv{reinterpret_cast<std::byte*>(pool.data()), layout};
  for (auto _ : state) {
    if (!backend->Attention({q, kv_heads * group, 0.125f, 0, 0, sequences, kv, out}).ok()) {
      state.SkipWithError("attention");
    }
  }
  const double pairs = batch * (static_cast<double>(rows) * context - rows * (rows - 1) / 2.0);
  Report(state, threads, static_cast<double>(batch) * context * kv_heads * head_dim * 2 * 2,
         pairs * cols * 4);
}

// Operations of a model so small (hidden 192, one token) that handing the work to threads may take
// longer than the work itself.
void BM_TinyLayer(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  auto backend = CreateCpuBackend({threads}).value();
  const Tensor x = backend->Allocate(1, 192).value(), y = backend->Allocate(1, 512).value(),
               z = backend->Allocate(1, 192).value();
  std::memset(x.data, 0, 192 * 4);
  std::vector<uint16_t> weights(192 * 512, 0x3c01);
  const Matrix square{weights.data(), WeightFormat::kBF16, 192, 192},
      up{weights.data(), WeightFormat::kBF16, 512, 192},
      down{weights.data(), WeightFormat::kBF16, 192, 512},
      norm{weights.data(), WeightFormat::kBF16, 1, 192};
  for (auto _ : state) {
    bool ok = backend->RmsNorm({x, norm, 1e-5f, z}).ok();
    for (int i = 0; i < 4; ++i) ok &= backend->Gemm({z, square, {}, false, x}).ok();
    ok &= backend->Gemm({x, up, {}, false, y}).ok() && backend->Gemm({x, up, {}, false, y}).ok();
    ok &= backend->SiluMul({y, y, y}).ok() && backend->Gemm({y, down, {}, false, x}).ok();
    if (!ok) state.SkipWithError("layer");
  }
}

void BM_SiluMul(benchmark::State& state) {
  auto backend = CreateCpuBackend({1}).value();
  const Tensor x = backend->Allocate(8, 2048).value();
  for (int i = 0; i < 8 * 2048; ++i) static_cast<float*>(x.data)[i] = i % 100 * 0.1f - 5;
  const Tensor out = backend->Allocate(8, 2048).value();
  for (auto _ : state) {
    if (!backend->SiluMul({x, x, out}).ok()) state.SkipWithError("silu");
  }
  state.SetItemsProcessed(state.iterations() * 8 * 2048);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"T", "m", "n", "k", "type", "path"})->UseRealTime();
  const auto bf16 = static_cast<int64_t>(DType::kBF16);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t m : {1, 2, 4, 5, 8, 16, 32, 64, 512}) {
      for (int path = 0; path < 6; ++path) b->Args({threads, m, 2048, 2048, bf16, path});
    }
    for (const int64_t m : {1, 8, 512}) {
      for (const int path : {0, 2, 5}) b->Args({threads, m, 2048, 8192, bf16, path});
    }
  }
  for (const DType type : {DType::kF32, DType::kF16}) {
    for (const int64_t m : {1, 8, 512}) b->Args({2, m, 2048, 2048, static_cast<int64_t>(type), 0});
  }
}
BENCHMARK(BM_Gemm)->Apply(Shapes);
BENCHMARK(BM_Attention)
    ->ArgNames({"T", "batch", "rows", "context", "group"})
    ->UseRealTime()
    ->Args({1, 1, 1, 4096, 4})
    ->Args({2, 1, 1, 4096, 4})
    ->Args({2, 1, 1, 4096, 1})
    ->Args({2, 8, 1, 1024, 4})
    ->Args({2, 8, 1, 8192, 4})
    ->Args({2, 1, 512, 512, 4})
    ->Args({1, 1, 512, 2048, 4})
    ->Args({2, 1, 512, 2048, 4})
    ->Args({2, 1, 512, 2048, 1});
BENCHMARK(BM_TinyLayer)->ArgNames({"T"})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(BM_SiluMul);

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto print = [](const char* when) {
    for (const int threads : {1, 2}) {
      std::printf("%s, %d thread%s: read %.1f GB/s, FMA %.0f GFLOP/s\n", when, threads,
                  threads == 1 ? "" : "s", baton::ReadRate(threads) / 1e9,
                  baton::FmaRate(threads) / 1e9);
    }
  };
  print("before");
  benchmark::RunSpecifiedBenchmarks();
  print("after");
}
