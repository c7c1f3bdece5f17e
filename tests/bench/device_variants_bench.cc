// Compares variants of the same work: attention by each kernel and with several launches and block
// sizes, sampling of each kind, and gemms by each algorithm that the library proposes. "The choice"
// is the variant that the backend itself uses. "1.20 of the choice" means that the choice takes 1.2
// times as long as the variant.

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device_sampler.h"
#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/kernels/launches.h"
#include "tests/bench/device_bench.h"
#include "tests/bench/paged_step.h"

namespace baton {
namespace {

using Timed = DeviceBench::Timed;
using Times = DeviceBench::Times;

// One way to do some work. In a list of variants, the first is the backend's choice.
struct Variant {
  std::string name;
  Timed timed;
};

void AddVariants(DeviceBench& bench, const std::vector<Variant>& variants) {
  std::vector<Timed> timed;
  for (const Variant& variant : variants) timed.push_back(variant.timed);
  const std::vector<Times> times = bench.Rounds(timed);
  for (size_t i = 0; i < variants.size(); ++i) {
    auto figure = MicrosecondsFigure(variants[i].name, times[i]);
    if (i > 0) {
      figure.ratio = times[0].median / times[i].median;
      figure.of = "the choice";
    }
    bench.figures().Add(figure);
  }
}

// The work list of the kernel split_attention for all rows of a step. It is the list that the
// backend makes (AttentionLaunches) if all rows fit in one launch. The constructor computes the
// list on the device.
class SplitWork {
 public:
  SplitWork(DeviceBench& bench, const PagedStep& step) {
    const PagedAttentionParams& params = step.params();
    int max_rows = 1;
    for (const SequenceRows& s : step.sequences()) max_rows = std::max(max_rows, s.rows);
    const int tile_rows = std::min(AttentionTileRows(params), max_rows);
    for (const SequenceRows& s : step.sequences()) {
      for (int i = 0; i < s.rows; i += tile_rows) {
        const int last = s.first_position + std::min(i + tile_rows, s.rows) - 1;
        items_ += last / kAttentionRange + 1;
      }
    }
    const int64_t rows = params.step.rows;
    split_ = {.attention = params,
              .plan = {.step = params.step,
                       .first_row = 0,
                       .rows = params.step.rows,
                       .prefill_rows = INT32_MAX,
                       .tile_rows = tile_rows,
                       .window = params.window,
                       .first_item = reinterpret_cast<int32_t*>(bench.Memory(4 * (rows + 1))),
                       .items = reinterpret_cast<AttentionItem*>(bench.Memory(8 * items_))}};
    const int64_t lines = items_ * tile_rows * params.heads;
    split_.values = reinterpret_cast<float*>(bench.Memory(4 * lines * params.pages.head_dim));
    split_.sums = reinterpret_cast<float*>(bench.Memory(8 * lines));
    DeviceBench::Check(bench.runtime().Launch(bench.device().kernels.attention_plan,
                                              LaunchOf(split_.plan), split_.plan, bench.stream()),
                       "attention_plan");
  }

  // Returns the number of thread blocks for which the list has work.
  int64_t max_blocks() const { return items_ * split_.attention.pages.kv_heads; }
  // Launches split_attention on `blocks` thread blocks, and then merge_attention.
  absl::Status Launch(DeviceBench& bench, int64_t blocks) const {
    SplitAttentionParams split = split_;
    split.blocks = static_cast<int32_t>(std::min(blocks, max_blocks()));
    const KernelTable& kernels = bench.device().kernels;
    const Kernel& kernel = kernels.split_attention[AttentionKernelIndex(split.attention.pages)];
    RETURN_IF_ERROR(bench.runtime().Launch(kernel, LaunchOf(split), split, bench.stream()));
    return bench.runtime().Launch(kernels.merge_attention, MergeLaunchOf(split), split,
                                  bench.stream());
  }

 private:
  int64_t items_ = 0;
  SplitAttentionParams split_ = {};
};

PrefillAttentionParams PrefillOf(const PagedStep& step) {
  PrefillAttentionParams prefill = {
      .attention = step.params(),
      .sequences = static_cast<int32_t>(step.sequences().size()),
      .prefill_rows = 1,
      .tile_rows = AttentionTileRows(step.params()) * kPrefillAttentionWarps};
  for (const SequenceRows& s : step.sequences()) {
    prefill.tiles += TilesOf(s.rows, prefill.tile_rows);
  }
  return prefill;
}

}  // namespace

void BenchAttentionVariants(DeviceBench& bench) {
  const bool tiny = bench.tiny();
  struct Shape {
    int batch, context, rows;
  };
  const std::vector<Shape> shapes =
      tiny ? std::vector<Shape>{{2, 300, 1}, {1, 40, 20}}
           : std::vector<Shape>{{1, 8192, 1},  {8, 8192, 1},   {64, 4096, 1},
                                {8, 4096, 16}, {1, 8192, 512}, {1, 2048, 2048}};
  const int usual_tokens = tiny ? 16 : 64;
  const std::vector<int> other_tokens = tiny ? std::vector<int>{32} : std::vector<int>{16, 32, 128};
  const int multiprocessors = bench.runtime().info().multiprocessors;
  for (const Shape& s : shapes) {
    const std::string name =
        absl::StrCat("attention ", s.batch, " x ", s.rows, " of ", s.context, ", ");
    if (!bench.Wants(name)) continue;
    const PagedStep::Shape shape = {
        .heads = AttentionHeads(tiny), .batch = s.batch, .context = s.context, .rows = s.rows};
    std::vector<Variant> variants;
    std::vector<std::unique_ptr<AttentionLaunches>> launches;
    // Returns an item that times the attention of `step` with the kernels that the backend chooses.
    const auto choice = [&](const PagedStep& step) {
      launches.push_back(std::make_unique<AttentionLaunches>(&bench.runtime(), &bench.stream(),
                                                             &bench.device().kernels));
      return bench.InGraph([&step, own = launches.back().get()](int) {
        return own->Attend(step.params(), step.sequences(), /*version=*/1);
      });
    };
    const PagedStep step(bench, AttentionLayout(tiny, usual_tokens), shape);
    variants.push_back({absl::StrCat(name, "the choice"), choice(step)});
    const KernelTable& kernels = bench.device().kernels;
    variants.push_back({absl::StrCat(name, "paged"), bench.InGraph([&](int) {
                          return bench.runtime().Launch(kernels.paged_attention,
                                                        LaunchOf(step.params()), step.params(),
                                                        bench.stream());
                        })});
    const SplitWork split(bench, step);
    for (const int each : {1, 2, 4, 8, 16}) {
      const int64_t blocks = int64_t{1} * each * multiprocessors;
      variants.push_back({absl::StrCat(name, "split, ", each, " blocks a multiprocessor"),
                          bench.InGraph([&](int) { return split.Launch(bench, blocks); })});
      if (blocks >= split.max_blocks()) break;  // More thread blocks would have no work.
    }
    variants.push_back(
        {absl::StrCat(name, "split, a block for each range"),
         bench.InGraph([&](int) { return split.Launch(bench, split.max_blocks()); })});
    if (PrefillAttentionSharedBytes(step.params().pages.head_dim) <=
        bench.runtime().info().shared_bytes) {
      const PrefillAttentionParams prefill = PrefillOf(step);
      const Kernel& kernel =
          kernels.prefill_attention[AttentionKernelIndex(prefill.attention.pages)];
      variants.push_back({absl::StrCat(name, "prefill"), bench.InGraph([&](int) {
                            return bench.runtime().Launch(kernel, LaunchOf(prefill), prefill,
                                                          bench.stream());
                          })});
    }
    std::vector<std::unique_ptr<PagedStep>> others;
    for (const int tokens : other_tokens) {
      others.push_back(std::make_unique<PagedStep>(bench, AttentionLayout(tiny, tokens), shape));
      variants.push_back(
          {absl::StrCat(name, "blocks of ", tokens, " tokens"), choice(*others.back())});
    }
    // A block of a worker's pool holds the KV of all layers, so the KV of one layer is spread over
    // the pool. This variant measures how much slower attention is because of that.
    KvLayout all_layers = AttentionLayout(tiny, usual_tokens);
    all_layers.layers = tiny ? 2 : 32;
    if (s.rows == 1) {
      const std::string deep = absl::StrCat(name, "in a pool of ", all_layers.layers, " layers");
      const size_t bytes = all_layers.BlockBytes() * s.batch * all_layers.BlocksFor(s.context);
      const auto free = bench.runtime().FreeBytes();
      if (free.ok() && *free > bytes + (size_t{1} << 20)) {
        others.push_back(std::make_unique<PagedStep>(bench, all_layers, shape));
        variants.push_back({deep, choice(*others.back())});
      } else {
        bench.figures().Skip(deep, absl::StrCat("its pool of ", bytes >> 20,
                                                " MiB does not fit beside what is there"));
      }
    }
    AddVariants(bench, variants);
  }
}

void BenchSamples(DeviceBench& bench) {
  const int vocab = bench.tiny() ? 3000 : 128256;
  const std::vector<int> batches =
      bench.tiny() ? std::vector<int>{2} : std::vector<int>{1, 64, 256};
  struct Kind {
    std::string name;
    SamplingOptions options;
    // Max microseconds for a batch of 1 and for a batch of 256; 0: no max.
    double max_us_of_1 = 0, max_us_of_256 = 0;
  };
  std::vector<Kind> kinds(7);
  kinds[0].name = "greedy";
  kinds[1].name = "temperature";
  kinds[2].name = "top-k 50";
  kinds[2].options.top_k = 50;
  kinds[3].name = "top-p 0.9";
  kinds[3].options.top_p = 0.9f;
  kinds[4].name = "top-k 50, top-p 0.9";
  kinds[4].options.top_k = 50;
  kinds[4].options.top_p = 0.9f;
  kinds[5].name = "temperature, 20 logprobs";
  kinds[5].options.logprobs = 20;
  kinds[6].name = "temperature, bias of 10 tokens";
  // Each replay of a graph adds the bias to the same logits again. The bias is so small that even
  // many replays hardly change them.
  for (int i = 0; i < 10; ++i) kinds[6].options.logit_bias.emplace_back(i * 7, 1e-6f);
  for (size_t i = 1; i < kinds.size(); ++i) kinds[i].options.temperature = 1;
  for (const int i : {2, 3, 4}) kinds[i].max_us_of_1 = 25, kinds[i].max_us_of_256 = 120;

  // Logits with the spread of a model's logits, the same in every row.
  std::vector<float> row(vocab);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (float& logit : row) logit = normal(random);
  const int max = batches.back();
  auto* const logits = reinterpret_cast<float*>(bench.Memory(sizeof(float) * max * vocab));
  auto* const tokens = reinterpret_cast<int32_t*>(bench.Memory(sizeof(int32_t) * max));
  const float* const first = bench.Upload(row);
  for (int i = 0; i < max; ++i) {
    DeviceBench::Check(bench.runtime().Copy(logits + size_t{1} * i * vocab, first,
                                            sizeof(float) * vocab, bench.stream()),
                       "Copy");
  }
  for (const int batch : batches) {
    for (const Kind& kind : kinds) {
      const std::string name = absl::StrCat("sample ", batch, " x ", vocab, ", ", kind.name);
      if (!bench.Wants(name)) continue;
      auto sampler = DeviceSampler::Create({.runtime = &bench.runtime(),
                                            .stream = &bench.stream(),
                                            .kernels = &bench.device().kernels,
                                            .vocab = vocab,
                                            .max_rows = batch,
                                            .slots = batch,
                                            .history_tokens = 16});
      DeviceBench::Check(sampler.status(), "DeviceSampler::Create");
      std::vector<DeviceSampler::Row> rows;
      for (int i = 0; i < batch; ++i) {
        SamplingOptions options = kind.options;
        options.seed = i + 1;
        DeviceBench::Check((*sampler)->Join(i, options, /*history=*/nullptr), "Join");
        rows.push_back({.slot = i, .position = 100, .generated = 0});
      }
      const auto needs = (*sampler)->Prepare(rows);
      DeviceBench::Check(needs.status(), "Prepare");
      const auto times = bench.Rounds(
          {bench.InGraph([&](int) { return (*sampler)->Enqueue(logits, tokens, batch, *needs); })});
      auto figure = MicrosecondsFigure(name, times[0]);
      const double limit = batch == 1 ? kind.max_us_of_1 : batch == 256 ? kind.max_us_of_256 : 0;
      if (limit > 0) {
        figure.ratio = limit / figure.median;
        figure.of = absl::StrCat(limit, " us");
        figure.target = 1;
      }
      bench.figures().Add(figure);
    }
  }
}

void BenchGemmAlgorithms(DeviceBench& bench) {
  DeviceRuntime& runtime = bench.runtime();
  struct Shape {
    const char* name;
    int n, k;
  };
  const std::vector<Shape> shapes =
      bench.tiny()
          ? std::vector<Shape>{{"q", 128, 64}}
          : std::vector<Shape>{
                {"q", 4096, 4096}, {"k", 1024, 4096}, {"gate", 14336, 4096}, {"down", 4096, 14336}};
  const std::vector<int> rows = bench.tiny() ? std::vector<int>{4} : std::vector<int>{1, 64, 2048};
  const int max = 8;  // Max number of algorithms.
  size_t weight_bytes = bench.tiny() ? size_t{1} << 15 : size_t{512} << 20;
  size_t in_bytes = 0, out_bytes = 0;
  for (const Shape& s : shapes) {
    in_bytes = std::max(in_bytes, size_t{2} * rows.back() * s.k);
    out_bytes = std::max(out_bytes, size_t{2} * rows.back() * s.n);
  }
  std::byte* const weights = bench.Random(weight_bytes);
  std::byte* const in = bench.Random(in_bytes);
  std::byte* const out = bench.Random(out_bytes);
  for (const Shape& s : shapes) {
    const size_t bytes = size_t{2} * s.n * s.k;
    const int copies = static_cast<int>(std::max<size_t>(weight_bytes / bytes, 1));
    for (const int m : rows) {
      const std::string name = absl::StrCat("gemm ", s.name, " ", m, " x ", s.n, " x ", s.k);
      if (!bench.Wants(name)) continue;
      std::vector<Variant> variants;
      for (int algorithm = 0; algorithm < max; ++algorithm) {
        const DenseGemm gemm = {.in = in,
                                .in_stride = s.k,
                                .weight = weights,
                                .out = out,
                                .out_stride = s.n,
                                .rows = m,
                                .n = s.n,
                                .k = s.k,
                                .algorithm = algorithm};
        const absl::Status status = runtime.Gemm(gemm, bench.stream());
        if (algorithm > 0 && !status.ok()) {
          if (!absl::IsNotFound(status)) {
            bench.figures().Skip(absl::StrCat(name, ", algorithm ", algorithm), status.message());
            continue;
          }
          break;
        }
        DeviceBench::Check(status, "Product");
        variants.push_back({absl::StrCat(name, ", algorithm ", algorithm),
                            bench.InGraph(
                                [&, gemm](int i) {
                                  DenseGemm one = gemm;
                                  one.weight = weights + i * bytes;
                                  return runtime.Gemm(one, bench.stream());
                                },
                                copies)});
      }
      AddVariants(bench, variants);
    }
  }
}

}  // namespace baton
