#include "kernels/cuda/kernels/launches.h"

#include <algorithm>

namespace baton {
namespace {

constexpr int kThreads = 256;

int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }
int Octets(int elements) { return CeilDiv(elements, 8); }

// Returns the number of threads for so many items: one per item, in whole warps, between 32 and
// kThreads.
int ThreadsFor(int64_t items) {
  return static_cast<int>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, kThreads));
}

}  // namespace

LaunchShape LaunchOf(const EmbeddingParams& params) {
  return {.grid_x = params.rows, .threads = ThreadsFor(Octets(params.hidden))};
}

LaunchShape LaunchOf(const GatherRowsParams& params) {
  return {.grid_x = params.count, .threads = ThreadsFor(Octets(params.cols))};
}

LaunchShape LaunchOf(const RmsNormParams& params) {
  const int64_t norms = int64_t{params.rows} * params.groups;
  if (params.n > kMaxColumnsOfOneWarp) {
    return {.grid_x = static_cast<int>(norms), .threads = kRmsNormWarps * 32};
  }
  const int warps = static_cast<int>(std::min<int64_t>(norms, kRmsNormWarps));
  return {.grid_x = CeilDiv(norms, warps), .threads = warps * 32};
}

LaunchShape LaunchOf(const BiasRowsParams& params) {
  return {.grid_x = params.rows, .threads = ThreadsFor(Octets(params.cols))};
}

LaunchShape LaunchOf(const SiluMulParams& params) {
  const int threads = ThreadsFor(Octets(params.cols));
  return {
      .grid_x = params.rows, .grid_y = CeilDiv(Octets(params.cols), threads), .threads = threads};
}

LaunchShape LaunchOf(const RopeTableParams& params) {
  return {.grid_x = params.step.rows, .threads = ThreadsFor(params.max_pairs)};
}

LaunchShape LaunchOf(const RopeWriteKvParams& params) {
  const int64_t heads = params.heads + 2 * params.pages.kv_heads;
  return {.grid_x = params.step.rows, .threads = ThreadsFor(heads * Octets(params.pages.head_dim))};
}

LaunchShape LaunchOf(const PagedAttentionParams& params) {
  const int group = params.heads / params.pages.kv_heads;
  return {.grid_x = params.step.rows,
          .grid_y = params.pages.kv_heads,
          .threads = 32 * std::min(group, kPagedAttentionWarps)};
}

LaunchShape LaunchOf(const AttentionPlanParams&) { return {.threads = 32}; }

LaunchShape LaunchOf(const SplitAttentionParams& params) {
  return {.grid_x = params.blocks,
          .threads = 32,
          .shared_bytes = SplitAttentionSharedBytes(params.attention.pages.head_dim)};
}

LaunchShape MergeLaunchOf(const SplitAttentionParams& params) {
  return {.grid_x = params.plan.rows,
          .grid_y = CeilDiv(params.attention.heads, kMergeAttentionWarps),
          .threads = 32 * kMergeAttentionWarps};
}

LaunchShape LaunchOf(const PrefillAttentionParams& params) {
  return {.grid_x = params.tiles,
          .grid_y = params.attention.pages.kv_heads,
          .threads = 32 * kPrefillAttentionWarps,
          .shared_bytes = PrefillAttentionSharedBytes(params.attention.pages.head_dim)};
}

LaunchShape LaunchOf(const ArgmaxParams& params) {
  return {.grid_x = params.rows, .threads = ThreadsFor(params.vocab)};
}

}  // namespace baton
