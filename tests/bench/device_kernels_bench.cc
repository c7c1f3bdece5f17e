// Copies, products and attention, as a step of an 8B Llama has them.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kv_checksum.h"
#include "kernels/kv_layout.h"
#include "tests/bench/device_bench.h"

namespace baton {
namespace {

using Timed = DeviceBench::Timed;
using Times = DeviceBench::Times;

// Bytes a second, in units of 10^9.
BenchFigures::Figure Rate(std::string name, double bytes, const Times& t) {
  return {std::move(name), "GB/s", bytes / t.median / 1e9, bytes / t.most / 1e9,
          bytes / t.least / 1e9};
}

BenchFigures::Figure Microseconds(std::string name, const Times& t) {
  return {std::move(name), "us", t.median * 1e6, t.least * 1e6, t.most * 1e6};
}

// Sequences that have `context` positions each, of which the last `rows` are the step's, in a pool
// of one layer whose blocks are dealt out at random.
class PagedStep {
 public:
  PagedStep(DeviceBench& bench, const KvLayout& layout, int batch, int context, int rows)
      : layout_(layout) {
    const int each = layout.BlocksFor(context);
    std::vector<BlockId> all(size_t{1} * batch * each);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), std::mt19937(1));
    for (int i = 0; i < batch; ++i) {
      blocks_.emplace_back(all.begin() + i * each, all.begin() + (i + 1) * each);
    }
    for (int i = 0; i < batch; ++i) {
      sequences_.push_back({i * rows, rows, context - rows, blocks_[i]});
    }
    pool_ = bench.Random(all.size() * layout.BlockBytes());
  }

  // Both live as long as this.
  absl::Span<const SequenceRows> sequences() const { return sequences_; }
  KvView kv() const { return {pool_, layout_}; }

 private:
  const KvLayout layout_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<SequenceRows> sequences_;
  std::byte* pool_;
};

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

  // What only reads: the checksums of a hand-over, over as much as the copy's source.
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
  const BenchFigures::Figure yardstick = Rate("copy", copy.bytes, times[0]);
  bench.figures().Add(yardstick);
  auto checksum = Rate("kv_checksum", 1.0 * slices * slice_bytes, times[1]);
  checksum.ratio = checksum.median / yardstick.median;
  checksum.of = "copy";
  bench.figures().Add(checksum);
  bench.figures().Add(Rate("device to host", host_bytes, times[2]));
  bench.figures().Add(Rate("host to device", host_bytes, times[3]));
  runtime.FreePinned(host);
}

void BenchProducts(DeviceBench& bench) {
  DeviceRuntime& runtime = bench.runtime();
  const auto copy = bench.CopyYardstick();
  const auto square = bench.ProductYardstick();
  struct Shape {
    const char* name;
    int n, k;
  };
  // Each projection by itself, as ForwardPass runs them: o is of q's shape, v of k's, up of gate's.
  const std::vector<Shape> shapes = bench.tiny()
                                        ? std::vector<Shape>{{"q", 128, 64}, {"down", 64, 128}}
                                        : std::vector<Shape>{{"q", 4096, 4096},
                                                             {"k", 1024, 4096},
                                                             {"gate", 14336, 4096},
                                                             {"down", 4096, 14336},
                                                             {"head", 128256, 4096}};
  const std::vector<int> rows =
      bench.tiny() ? std::vector<int>{1, 8} : std::vector<int>{1, 8, 64, 256, 2048, 8192};
  const int most_rows = rows.back();
  size_t weight_bytes = 0, in_bytes = 0, out_bytes = 0;
  for (const Shape& s : shapes) {
    weight_bytes = std::max(weight_bytes, size_t{2} * s.n * s.k);
    in_bytes = std::max(in_bytes, size_t{2} * most_rows * s.k);
    out_bytes = std::max(out_bytes, size_t{2} * most_rows * s.n);
  }
  // Weights one after another through all of it, so that no cache has them.
  std::byte* const weights = bench.Random(weight_bytes);
  std::byte* const in = bench.Random(in_bytes);
  std::byte* const out = bench.Random(out_bytes);
  for (const Shape& s : shapes) {
    std::vector<Timed> timed = {copy.timed, square.timed};
    const size_t bytes = size_t{2} * s.n * s.k;
    const size_t copies = weight_bytes / bytes;
    for (const int m : rows) {
      const DenseProduct product = {
          .in = in, .in_stride = s.k, .out = out, .out_stride = s.n, .rows = m, .n = s.n, .k = s.k};
      timed.push_back(bench.OnStream([&, product, next = size_t{0}]() mutable {
        DenseProduct now = product;
        now.weight = weights + next++ % copies * bytes;
        return runtime.Product(now, bench.stream());
      }));
    }
    const auto times = bench.Rounds(timed);
    const double bandwidth = copy.bytes / times[0].median, rate = square.flops / times[1].median;
    if (&s == &shapes.front()) {
      const double flops = square.flops;
      bench.figures().Add({"product 8192 x 8192 x 8192", "TFLOP/s", flops / times[1].median / 1e12,
                           flops / times[1].most / 1e12, flops / times[1].least / 1e12});
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const double m = rows[i], moved = bytes + 2 * m * (s.n + s.k), flops = 2 * m * s.n * s.k;
      auto figure = Microseconds(
          absl::StrCat("product ", s.name, " ", rows[i], " x ", s.n, " x ", s.k), times[2 + i]);
      figure.ratio = std::max(moved / bandwidth, flops / rate) / times[2 + i].median;
      figure.of = moved / bandwidth > flops / rate ? "copy" : "product";
      bench.figures().Add(figure);
    }
  }
}

void BenchAttention(DeviceBench& bench) {
  const auto copy = bench.CopyYardstick();
  const auto square = bench.ProductYardstick();
  const auto backend = bench.CreateBackend(&bench.runtime());
  const int heads = bench.tiny() ? 4 : 32;
  const KvLayout layout = {.layers = 1,
                           .kv_heads = heads / 4,
                           .head_dim = bench.tiny() ? 64 : 128,
                           .block_tokens = bench.tiny() ? 16 : 64,
                           .type = DType::kBF16};
  const auto tensor = [&](int rows) {
    return Tensor{bench.Random(size_t{2} * rows * heads * layout.head_dim), rows,
                  heads * layout.head_dim, heads * layout.head_dim};
  };
  struct Shape {
    int batch, context, rows;
    double target;
  };
  const std::vector<Shape> shapes =
      bench.tiny()
          ? std::vector<Shape>{{2, 40, 1, 0.75}, {1, 40, 40, 0}}
          : std::vector<Shape>{{1, 1024, 1, 0},     {1, 8192, 1, 0},     {32, 1024, 1, 0},
                               {64, 2048, 1, 0.75}, {64, 4096, 1, 0.75}, {32, 16384, 1, 0.75},
                               {1, 2048, 2048, 0},  {1, 4096, 4096, 0},  {1, 8192, 8192, 0},
                               {1, 16384, 2048, 0}};
  for (const Shape& s : shapes) {
    const PagedStep step(bench, layout, s.batch, s.context, s.rows);
    const Tensor q = tensor(s.batch * s.rows), out = tensor(s.batch * s.rows);
    const AttentionArgs args = {.q = q,
                                .heads = heads,
                                .scale = 1 / std::sqrt(static_cast<float>(layout.head_dim)),
                                .sequences = step.sequences(),
                                .kv = step.kv(),
                                .out = out};
    const auto times = bench.Rounds(
        {copy.timed,
         square.timed,
         {[&] { return backend->Attention(args); }, [&] { return backend->Synchronize(); }}});
    const bool decode = s.rows == 1;
    const double kv_bytes = 1.0 * s.batch * s.context * layout.BlockBytes() / layout.block_tokens;
    // Each row sees the positions up to its own.
    const double seen = s.rows * (s.context - s.rows + (s.rows + 1) / 2.0);
    const double flops = 4.0 * s.batch * heads * layout.head_dim * seen;
    auto figure =
        Microseconds(decode ? absl::StrCat("decode attention ", s.batch, " x ", s.context)
                            : absl::StrCat("prefill attention ", s.rows, " of ", s.context),
                     times[2]);
    figure.ratio = decode ? kv_bytes / (copy.bytes / times[0].median) / times[2].median
                          : flops / (square.flops / times[1].median) / times[2].median;
    figure.of = decode ? "copy" : "product";
    figure.target = s.target;
    bench.figures().Add(figure);
  }
}

}  // namespace baton
