#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

// Inputs and output of one step's attention, for the kernel and for its reference implementation. K
// and V are filled for keys that some row sees, and NaN everywhere else.
struct ReferenceAttention {
  struct Shape {
    KvLayout layout;
    std::vector<int> lengths, rows;  // arguments of ReferenceStep
    int ratio;                       // query heads per KV head
    int window;
    float soft_cap;
    float deviation = 1;  // standard deviation of q, and so of the scores
  };
  static constexpr int kLayer = 1;

  ReferenceAttention(KernelTrial& trial, const Shape& shape)
      : shape(shape),
        step(trial, shape.layout, shape.lengths, shape.rows),
        rows(static_cast<int>(step.sequence_of_row.size())),
        heads(shape.layout.kv_heads * shape.ratio) {
    step.FillPool(trial, kLayer, shape.window);
    q = trial.Filled(rows, heads * shape.layout.head_dim, shape.deviation);
    out = trial.Output(rows, heads * shape.layout.head_dim);
  }

  PagedAttentionParams at(Side side) const {
    return {.step = step.at(side),
            .q = q.at(side),
            .out = out.at(side),
            .q_stride = q.stride,
            .out_stride = out.stride,
            .heads = heads,
            .window = shape.window,
            .scale = 1 / std::sqrt(static_cast<float>(shape.layout.head_dim)),
            .soft_cap = shape.soft_cap,
            .pages = step.pages(side, kLayer)};
  }
  std::string Name() const {
    return absl::StrCat(shape.layout.Fingerprint(), " ratio ", shape.ratio, " window ",
                        shape.window, " cap ", shape.soft_cap);
  }

  const Shape shape;
  ReferenceStep step;
  const int rows, heads;
  ReferenceTensor q, out;
};

// Returns a soft cap that is small enough to change scores with a standard deviation of 1.
float SomeSoftCap(KernelTrial& trial) { return 0.1f * trial.Pick(5, 30); }
// The soft cap of Gemma 2, and a deviation with which scores exceed it.
constexpr float kWideSoftCap = 50, kWideDeviation = 60;

void RunPagedCase(KernelTrial& trial, int i) {
  constexpr int kHeadDims[] = {64, 80, 96, 128, 256, 10, 1, 33};
  constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
  const int ratio = i / 2 + 1;  // 1 to 16
  const KvLayout layout = {.layers = 2,
                           .kv_heads = ratio > 6 ? 1 : trial.Pick(1, 3),
                           .head_dim = kHeadDims[i % 8],
                           .block_tokens = trial.Pick(1, 40),
                           .type = kTypes[i % 3]};
  const int windows[] = {0, trial.Pick(1, 20), trial.Pick(30, 100), 1 << 30};
  // Three sequences: a chunk after a cached prefix, a whole prompt, and one decode token.
  const int chunk = trial.Pick(1, 4), prompt = trial.Pick(1, 5);
  const ReferenceAttention attention(
      trial, {.layout = layout,
              .lengths = {trial.Pick(chunk, 110), prompt, trial.Pick(55, 110)},
              .rows = {chunk, prompt, 1},
              .ratio = ratio,
              .window = windows[trial.Pick(0, 3)],
              .soft_cap = i % 4 == 3 ? SomeSoftCap(trial) : 0});
  trial.Run(trial.kernels().paged_attention, attention.at(Side::kKernel),
            attention.at(Side::kReference));
  // The tolerance allows for errors of scores, which are float sums over head_dim and may be
  // several units large.
  trial.Check(attention.Name(), 4e-6, 0.03);
}

void RunPlanCase(KernelTrial& trial, int i) {
  const KvLayout layout = {1, 1, 8, trial.Pick(1, 300)};
  const int windows[] = {0, 1, 1 << 30, trial.Pick(2, 900)};
  const int window = windows[i % 4], tile_rows = i % 3 == 0 ? 1 : trial.Pick(2, 16);
  // Most cases have more rows than a warp has lanes. Attention splits keys into ranges of
  // kAttentionRange. The keys of one sequence end where a range ends. The keys that another
  // sequence sees begin where a range begins.
  const std::vector<int> rows = {1, trial.Pick(1, 50), 1, trial.Pick(1, 50), 1};
  const ReferenceStep step(trial, layout,
                           {trial.Pick(1, 2000), trial.Pick(600, 1400), kAttentionRange, rows[3],
                            kAttentionRange + std::clamp(window, 1, 2000)},
                           rows);
  const int all = static_cast<int>(step.sequence_of_row.size());
  const int prefill_rows = i % 2 == 0 ? INT32_MAX : trial.Pick(1, 30);
  const int first_row = i < 6 ? 0 : trial.Pick(0, all / 2);
  const int count = i < 6 ? all : trial.Pick(1, all - first_row);
  ReferenceMemory* const first_item = trial.Memory(DType::kF32, count + 1, 0, /*is_output=*/true);
  ReferenceMemory* const items =
      trial.Memory(DType::kF32, size_t{2} * 10 * count, 0, /*is_output=*/true);
  const auto params = [&](Side side) {
    return AttentionPlanParams{.step = step.at(side),
                               .first_row = first_row,
                               .rows = count,
                               .prefill_rows = prefill_rows,
                               .tile_rows = tile_rows,
                               .window = window,
                               .first_item = reinterpret_cast<int32_t*>(first_item->at(side)),
                               .items = reinterpret_cast<AttentionItem*>(items->at(side))};
  };
  trial.Run(trial.kernels().attention_plan, params(Side::kKernel), params(Side::kReference));
  trial.Check(absl::StrCat(count, " rows by ", tile_rows, ", window ", window, ", those of ",
                           prefill_rows, " left out"),
              0, 0);
}

// Returns the head_dim of case `i`. Small head_dims come more often. The cases from `half` on have
// f16 pools, and cover every head_dim once more.
int HeadDim(int i, int half) {
  constexpr int kDimIndex[] = {0, 3, 1, 0, 2, 0, 4, 0};
  return kAttentionHeadDims[i < half ? kDimIndex[i % 8] : i - half];
}

// The kernels round each weight to the pool's 16-bit type before they sum; the reference
// implementation does not. The tolerance allows for this rounding.
void CheckFast(KernelTrial& trial, const ReferenceAttention& attention) {
  const bool half = attention.shape.layout.type == DType::kF16;
  trial.Check(attention.Name(), half ? 0x1p-11 : 0x1p-8, half ? 0.1 : 0.5);
}

constexpr int kSplitCases = 22;

void RunSplitCase(KernelTrial& trial, int i) {
  // The cases cover every head_dim, every ratio of heads, several ranges of keys, and more tiles
  // than the pipeline has stages.
  constexpr int kBlockTokens[] = {16, 64, 8, 32, 5}, kMaxRanges = 3;
  // True for one case: a tile of four rows, whose windows have almost left the first range of keys
  // (kAttentionRange keys). In that range, the first row sees only the last key, and the other rows
  // see no key.
  const bool leaves_range = i == kSplitCases - 1;
  const DType type = i < 16 ? DType::kBF16 : DType::kF16;
  const int head_dim = leaves_range ? 64 : HeadDim(i, 16);
  const KvLayout layout = {.layers = 2,
                           .kv_heads = i % 4 == 0 ? 2 : 1,
                           .head_dim = head_dim,
                           .block_tokens = kBlockTokens[i / 2 % 5],
                           .type = type};
  // Rows of three sequences: a chunk that crosses the end of a range (kAttentionRange keys) or of a
  // tile of keys, a whole prompt, and one decode token.
  const int chunk = leaves_range ? 4 : trial.Pick(2, 5), prompt = trial.Pick(1, 9);
  std::vector<int> lengths = {(i % 4 == 0 ? kAttentionRange : 32 * trial.Pick(1, 3)) + chunk / 2,
                              prompt, i % 4 == 1 ? trial.Pick(513, 600) : trial.Pick(1, 100)};
  const int windows[] = {0, i == 3 ? 1 : trial.Pick(1, 20), trial.Pick(30, 300), 1 << 30};
  const int window = windows[leaves_range ? 2 : i / 2 % 4];
  if (leaves_range) lengths[0] = kAttentionRange + window - 2 + chunk;
  const bool wide = i == 13;
  const ReferenceAttention attention(
      trial, {.layout = layout,
              .lengths = lengths,
              .rows = {chunk, prompt, 1},
              .ratio = leaves_range ? 4 : (i * 5 + 2) % 16 + 1,
              .window = window,
              .soft_cap = wide         ? kWideSoftCap
                          : i % 3 == 1 ? SomeSoftCap(trial)
                                       : 0,
              // One case has scores so far apart that only the largest one counts.
              .deviation = wide     ? kWideDeviation
                           : i == 9 ? 1000
                                    : 1});
  const PagedAttentionParams of_kernel = attention.at(Side::kKernel);
  const int tile_rows = i % 4 == 0 ? 1 : AttentionTileRows(of_kernel);
  const size_t items = size_t{kMaxRanges} * attention.rows;
  const size_t lines = items * tile_rows * attention.heads;
  ReferenceMemory* const first_item = trial.Scratch(attention.rows + 1);
  ReferenceMemory* const list = trial.Scratch(2 * items);
  // In some cases the plan leaves out the chunk, because prefill_attention would compute it. The
  // kernels under test must then not change the chunk's rows.
  const int prefill_rows = i % 5 == 3 && chunk > prompt ? chunk : INT32_MAX;
  const auto plan = [&](Side side) {
    return AttentionPlanParams{.step = attention.step.at(side),
                               .rows = attention.rows,
                               .prefill_rows = prefill_rows,
                               .tile_rows = tile_rows,
                               .window = attention.shape.window,
                               .first_item = reinterpret_cast<int32_t*>(first_item->at(side)),
                               .items = reinterpret_cast<AttentionItem*>(list->at(side))};
  };
  ReferenceMemory* const values = trial.Scratch(lines * head_dim);
  ReferenceMemory* const sums = trial.Scratch(2 * lines);
  const int blocks = trial.Pick(1, 5);
  const auto params = [&](Side side) {
    return SplitAttentionParams{.attention = attention.at(side),
                                .plan = plan(side),
                                .blocks = blocks,
                                .values = reinterpret_cast<float*>(values->at(side)),
                                .sums = reinterpret_cast<float*>(sums->at(side))};
  };
  RunReference(plan(Side::kReference));
  for (ReferenceMemory* const memory : {first_item, list}) memory->GiveToKernel();
  const SplitAttentionParams split = params(Side::kKernel);
  trial.Run(trial.kernels().split_attention[AttentionKernelIndex(of_kernel.pages)], LaunchOf(split),
            split);
  trial.Run(trial.kernels().merge_attention, MergeLaunchOf(split), split);
  RunReference(params(Side::kReference));
  CheckFast(trial, attention);
}

void RunPrefillCase(KernelTrial& trial, int i) {
  constexpr int kBlockTokens[] = {32, 64, 8, 24, 5};
  const DType type = i < 16 ? DType::kBF16 : DType::kF16;
  // `ratio` is the number of query heads per KV head. The cases cover all ratios from 1 to 16.
  const int head_dim = HeadDim(i, 16), ratio = (i * 5 + 2) % 16 + 1;
  if (PrefillAttentionSharedBytes(head_dim) > trial.shared_bytes()) return;
  const KvLayout layout = {.layers = 2,
                           .kv_heads = i % 4 == 3 ? 2 : 1,
                           .head_dim = head_dim,
                           .block_tokens = kBlockTokens[i % 5],
                           .type = type};
  // Three sequences: a chunk that crosses the ends of a range and of tiles of rows, a prompt, and
  // one token.
  const int tile = kAttentionTileRows / ratio * kPrefillAttentionWarps;
  const int chunk = std::min(tile + trial.Pick(1, 4), 40), prompt = trial.Pick(1, 9);
  const int windows[] = {0, i % 2 == 0 ? 3 : trial.Pick(1, 20), trial.Pick(30, 300), 1 << 30};
  const bool wide = i == 7;
  std::vector<int> lengths = {(i % 2 == 0 ? 2 * kAttentionRange : 96) + chunk / 2, prompt,
                              trial.Pick(1, 100)};
  std::vector<int> rows = {chunk, prompt, 1};
  // In some cases (`mixed`), the shorter sequences come first. They have too few rows for
  // prefill_attention, so this kernel must leave their rows unchanged.
  const bool mixed = i % 4 == 2;
  if (mixed) {
    std::reverse(lengths.begin(), lengths.end());
    std::reverse(rows.begin(), rows.end());
  }
  if (i == 3) {  // adds 34 sequences in front, more than a warp has lanes; one of them has no rows
    lengths.insert(lengths.begin(), 34, trial.Pick(1, 9));
    rows.insert(rows.begin(), 34, 1);
    rows[5] = 0;
  }
  const ReferenceAttention attention(
      trial, {.layout = layout,
              .lengths = lengths,
              .rows = rows,
              .ratio = ratio,
              .window = windows[i / 2 % 4],
              .soft_cap = wide         ? kWideSoftCap
                          : i % 3 == 1 ? SomeSoftCap(trial)
                                       : 0,
              // One case has scores so far apart that only the largest one counts.
              .deviation = wide     ? kWideDeviation
                           : i == 6 ? 1000
                                    : 1});
  trial.options.max_shared_bytes = size_t{163} << 10;  // limit of sm_80
  const int prefill_rows = mixed ? chunk : 1;
  const auto params = [&](Side side) {
    PrefillAttentionParams prefill = {
        .attention = attention.at(side),
        .sequences = static_cast<int32_t>(attention.step.sequences.size()),
        .prefill_rows = prefill_rows,
        .tile_rows = tile};
    for (const ReferenceStep::Sequence& sequence : attention.step.sequences) {
      if (sequence.rows >= prefill_rows) prefill.tiles += TilesOf(sequence.rows, tile);
    }
    return prefill;
  };
  const PrefillAttentionParams of_kernel = params(Side::kKernel);
  trial.Run(trial.kernels().prefill_attention[AttentionKernelIndex(of_kernel.attention.pages)],
            of_kernel, params(Side::kReference));
  CheckFast(trial, attention);
}

}  // namespace

int64_t MmasOfPrefillAttention(const TestedKernels& tested, int rows) {
  KernelTrial trial(1, &tested);
  const ReferenceAttention attention(trial, {.layout = {2, 1, 64, 64, DType::kBF16},
                                             .lengths = {6 * kAttentionTileKeys + rows},
                                             .rows = {rows},
                                             .ratio = 1});
  std::map<std::string, int64_t> collectives;
  trial.options.collectives = &collectives;
  const PrefillAttentionParams params = {.attention = attention.at(Side::kKernel),
                                         .sequences = 1,
                                         .prefill_rows = 1,
                                         .tile_rows = kAttentionTileRows * kPrefillAttentionWarps,
                                         .tiles = 1};
  trial.Run(trial.kernels().prefill_attention[AttentionKernelIndex(params.attention.pages)],
            LaunchOf(params), params);
  return trial.status().ok() ? collectives["Mma<Bf16>"] : -1;
}

KernelCase PagedAttentionCase() { return {32, RunPagedCase}; }
KernelCase AttentionPlanCase() { return {12, RunPlanCase}; }
KernelCase SplitAttentionCase() { return {kSplitCases, RunSplitCase}; }
KernelCase PrefillAttentionCase() { return {21, RunPrefillCase}; }

}  // namespace baton
