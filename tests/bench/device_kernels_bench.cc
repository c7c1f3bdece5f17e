// Measures copies, gemms and attention with the shapes of a step of an 8B Llama.

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/kernels/kv_checksum.h"
#include "tests/bench/device_bench.h"
#include "tests/bench/paged_step.h"

namespace baton {
namespace {

using Timed = DeviceBench::Timed;

}  // namespace

void BenchCopies(DeviceBench& bench) {
  DeviceRuntime& runtime = bench.runtime();
  const auto copy = bench.CopyYardstick();
  const size_t host_bytes = bench.tiny() ? 1 << 20 : 256 << 20;
  const auto pinned = runtime.AllocatePinned(host_bytes);
  DeviceBench::Check(pinned.status(), "AllocatePinned");
  std::byte* const host = *pinned;
  std::byte* const device = bench.Random(host_bytes);
  DeviceBench::Check(runtime.Copy(host, device, host_bytes, bench.stream()), "Copy");

  // The checksums of a hand-over read much and write little, so their rate is compared with the
  // rate of a copy.
  const int slices = bench.tiny() ? 2 : kKvChecksumSlices;
  const int64_t slice_bytes = bench.tiny() ? 64 << 10 : 4 << 20;
  std::byte* const pool = bench.Random(slices * slice_bytes);
  KvChecksumParams sums = {};
  sums.slice_bytes = slice_bytes;
  sums.parts = static_cast<int32_t>(KvChecksumParts(slice_bytes));
  sums.sums = reinterpret_cast<uint64_t*>(bench.Random(slices * sums.parts * sizeof(uint64_t)));
  for (int i = 0; i < slices; ++i) sums.slices[i] = {pool + i * slice_bytes, uint64_t(i)};
  LaunchShape shape;
  shape.grid_x = slices;
  shape.grid_y = sums.parts;
  shape.threads = kKvChecksumThreads;

  const auto times = bench.Rounds(
      {copy.timed, bench.OnStream([&] {
         return runtime.Launch(bench.device().kernels.kv_checksum, shape, sums, bench.stream());
       }),
       bench.OnStream([&] { return runtime.Copy(host, device, host_bytes, bench.stream()); }),
       bench.OnStream([&] { return runtime.Copy(device, host, host_bytes, bench.stream()); })});
  const BenchFigures::Figure yardstick = RateFigure("copy", copy.bytes, times[0]);
  bench.figures().Add(yardstick);
  auto checksum = RateFigure("kv_checksum", 1.0 * slices * slice_bytes, times[1]);
  checksum.ratio = checksum.median / yardstick.median;
  checksum.of = "copy";
  bench.figures().Add(checksum);
  bench.figures().Add(RateFigure("device to host", host_bytes, times[2]));
  bench.figures().Add(RateFigure("host to device", host_bytes, times[3]));
  runtime.FreePinned(host);
}

void BenchGemms(DeviceBench& bench) {
  DeviceRuntime& runtime = bench.runtime();
  const auto copy = bench.CopyYardstick();
  const auto square = bench.GemmYardstick();
  struct Shape {
    const char* name;
    int n, k;
  };
  const std::vector<Shape> shapes = bench.tiny()
                                        ? std::vector<Shape>{{"q", 128, 64}, {"down", 64, 128}}
                                        : std::vector<Shape>{{"q", 4096, 4096},
                                                             {"k", 1024, 4096},
                                                             {"gate", 14336, 4096},
                                                             {"down", 4096, 14336},
                                                             {"head", 128256, 4096}};
  const std::vector<int> rows =
      bench.tiny() ? std::vector<int>{1, 8} : std::vector<int>{1, 8, 64, 256, 2048, 8192};
  const int max_rows = rows.back();
  // Successive gemms of a graph use successive parts of this memory, which is larger than the
  // device's cache. So each gemm reads its weight from memory.
  size_t weight_bytes = bench.tiny() ? size_t{1} << 15 : size_t{512} << 20;
  size_t in_bytes = 0, out_bytes = 0;
  for (const Shape& s : shapes) {
    weight_bytes = std::max(weight_bytes, size_t{2} * s.n * s.k);
    in_bytes = std::max(in_bytes, size_t{2} * max_rows * s.k);
    out_bytes = std::max(out_bytes, size_t{2} * max_rows * s.n);
  }
  const size_t rotated_bytes = bench.tiny() ? size_t{1} << 15 : size_t{512} << 20;
  std::byte* const weights = bench.Random(weight_bytes);
  std::byte* const in = bench.Random(in_bytes);
  std::byte* const out = bench.Random(out_bytes);
  bool said_rate = false;
  for (const Shape& s : shapes) {
    std::vector<Timed> timed = {copy.timed, square.timed};
    const size_t bytes = size_t{2} * s.n * s.k;
    const int copies = static_cast<int>(std::max<size_t>(rotated_bytes / bytes, 1));
    std::vector<std::pair<int, std::string>> measured;
    for (const int m : rows) {
      const std::string name = absl::StrCat("gemm ", s.name, " ", m, " x ", s.n, " x ", s.k);
      if (!bench.Wants(name)) continue;
      measured.emplace_back(m, name);
      const DenseGemm gemm = {
          .in = in, .in_stride = s.k, .out = out, .out_stride = s.n, .rows = m, .n = s.n, .k = s.k};
      timed.push_back(bench.InGraph(
          [&](int i) {
            DenseGemm one = gemm;
            one.weight = weights + i * bytes;
            return runtime.Gemm(one, bench.stream());
          },
          copies));
    }
    if (measured.empty()) continue;
    const auto times = bench.Rounds(timed);
    const double bandwidth = copy.bytes / times[0].median, rate = square.flops / times[1].median;
    if (!said_rate) {
      const double flops = square.flops;
      bench.figures().Add({"gemm 8192 x 8192 x 8192", "TFLOP/s", flops / times[1].median / 1e12,
                           flops / times[1].max / 1e12, flops / times[1].min / 1e12});
      said_rate = true;
    }
    for (size_t i = 0; i < measured.size(); ++i) {
      const double m = measured[i].first, moved = bytes + 2 * m * (s.n + s.k);
      const double flops = 2 * m * s.n * s.k;
      auto figure = MicrosecondsFigure(measured[i].second, times[2 + i]);
      figure.ratio = std::max(moved / bandwidth, flops / rate) / times[2 + i].median;
      figure.of = moved / bandwidth > flops / rate ? "copy" : "gemm";
      bench.figures().Add(figure);
    }
  }
}

void BenchAttention(DeviceBench& bench) {
  const auto copy = bench.CopyYardstick();
  std::optional<DeviceBench::Gemm> square;
  if (bench.gemms().ok()) square = bench.GemmYardstick();
  const KvLayout layout = AttentionLayout(bench.tiny(), bench.tiny() ? 16 : 64);
  struct Shape {
    int batch, context, rows;
    double target, good;  // Shares of the copy rate or of the gemm rate.
    // Max time in microseconds, for work where latency counts; 0: no max. If set, `target` and
    // `good` are not used.
    double max_us = 0;
  };
  // Targets grow with the bytes moved: work of a few microseconds can't reach the full bandwidth.
  const std::vector<Shape> shapes =
      bench.tiny()
          ? std::vector<Shape>{{2, 40, 1, 0.85, 0.95}, {1, 40, 1, 0, 0, 20}, {1, 40, 40, 0, 0}}
          : std::vector<Shape>{{1, 1024, 1, 0, 0, 15},    {1, 8192, 1, 0, 0, 20},
                               {32, 1024, 1, 0.65, 0.75}, {64, 2048, 1, 0.85, 0.95},
                               {64, 4096, 1, 0.85, 0.95}, {32, 16384, 1, 0.85, 0.95},
                               {1, 2048, 2048, 0, 0},     {1, 4096, 4096, 0, 0},
                               {1, 8192, 8192, 0, 0},     {1, 16384, 2048, 0, 0}};
  for (const Shape& s : shapes) {
    const bool decode = s.rows == 1;
    const std::string name = decode ? absl::StrCat("decode attention ", s.batch, " x ", s.context)
                                    : absl::StrCat("prefill attention ", s.rows, " of ", s.context);
    if (!bench.Wants(name)) continue;
    const PagedStep step(bench, layout,
                         {.heads = AttentionHeads(bench.tiny()),
                          .batch = s.batch,
                          .context = s.context,
                          .rows = s.rows});
    AttentionLaunches launches(&bench.runtime(), &bench.stream(), &bench.device().kernels);
    // Times the attention of one layer. The plan of the step is not timed: InGraph first runs the
    // work once without capture, and this run computes the plan.
    std::vector<Timed> timed = {
        bench.InGraph(
            [&](int) { return launches.Attend(step.params(), step.sequences(), /*version=*/1); }),
        copy.timed};
    if (square.has_value()) timed.push_back(square->timed);
    const auto times = bench.Rounds(timed);
    auto figure = MicrosecondsFigure(name, times[0]);
    if (s.max_us > 0) {
      figure.ratio = s.max_us / figure.median;
      figure.of = absl::StrCat(s.max_us, " us");
      figure.target = 1;
    } else if (decode) {
      figure.ratio = step.KvBytes() / (copy.bytes / times[1].median) / times[0].median;
      figure.of = "copy";
      figure.target = s.target;
      figure.good = s.good;
    } else if (square.has_value()) {
      figure.ratio = step.Flops() / (square->flops / times[2].median) / times[0].median;
      figure.of = "gemm";
    }
    bench.figures().Add(figure);
  }
}

}  // namespace baton
