#include "kernels/cuda/step_memory.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/layer_pages.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/step_samples.h"
#include "kernels/cuda/upload_slab.h"

namespace baton {
namespace {

constexpr int64_t kWord = sizeof(int32_t);

// Returns the number of rows of the largest step that is recorded as a CUDA graph.
int RecordedRows(const StepLimits& limits) {
  return StepGraphs::RowsFor(std::min({limits.sequences, limits.rows, StepGraphs::kMaxRows}),
                             limits.rows);
}

// Counts the memory of split attention, which computes the sequences with too few rows for
// prefill_attention. A work item is a tile of rows of one sequence, over one range of keys. A tile
// has as many rows as the longest of these sequences, up to AttentionTileRows. AttentionLaunches
// cuts the work in the same way.
void CountSplitAttention(const StepLimits& limits, size_t shared_bytes, int64_t max_partial_bytes,
                         StepMemory* memory) {
  const KvLayout& layout = limits.layout;
  const PagedAttentionParams params = {.heads = limits.heads,
                                       .pages = PagesOf({nullptr, layout}, 0)};
  if (!UsesTensorCores(params, shared_bytes)) return;
  const bool prefill = PrefillAttentionRows(params, shared_bytes) < INT32_MAX;
  const int64_t rows = limits.rows, sequences = std::min(limits.sequences, limits.rows);
  const int64_t ranges = (limits.context + kAttentionRange - 1) / kAttentionRange;
  const int64_t largest_tile = AttentionTileRows(params);
  int64_t max_tiles = 0;
  for (int64_t tile_rows = 1; tile_rows <= std::min(largest_tile, rows); ++tile_rows) {
    // Tiles have fewer rows than the largest tile only if the longest sequence has so few rows. So
    // each sequence then fits in one tile.
    int64_t tiles = sequences;
    if (tile_rows == largest_tile) {
      tiles = std::min(rows, rows / tile_rows + sequences);
      if (prefill) tiles = std::min(tiles, sequences * kPrefillAttentionWarps);
    }
    max_tiles = std::max(max_tiles, tiles);
    const int64_t tile_bytes = AttentionLineBytes(layout.head_dim) * tile_rows * limits.heads;
    const int64_t items = std::min(std::max(max_partial_bytes / tile_bytes, ranges),
                                   tiles * ranges);  // work items of one part
    memory->attention_partials =
        std::max(memory->attention_partials, static_cast<size_t>(items * tile_bytes));
  }
  // For each attention window, a recorded step has one plan (list of work items) for sequences of
  // any length.
  if (const int64_t recorded = RecordedRows(limits); recorded > 0) {
    const int64_t row_bytes = AttentionLineBytes(layout.head_dim) * limits.heads;
    const int64_t items =
        std::min(recorded * ranges, std::max<int64_t>(max_partial_bytes / row_bytes, 1));
    memory->attention_partials =
        std::max(memory->attention_partials, static_cast<size_t>(items * row_bytes));
    const std::set<int> windows(limits.windows.begin(), limits.windows.end());
    for (const int window : windows) {
      memory->fixed_plans.push_back(
          {window, static_cast<size_t>(recorded + 1 + 2 * items) * kWord});
    }
  }
  // Words of the plans of all parts of a step. A part takes one word per row, one extra word, and
  // two words per work item. There are at most max_tiles parts, because each has at least one tile,
  // and at most max_tiles * ranges items.
  memory->attention_plan = (rows + max_tiles + 2 * max_tiles * ranges) * kWord;
}

}  // namespace

StepMemory StepMemory::For(const StepLimits& limits, size_t shared_bytes,
                           size_t max_partial_bytes) {
  const size_t rows = limits.rows, recorded = RecordedRows(limits);
  // A recorded step has space for one sequence per row, even if it has fewer sequences.
  const size_t sequences = std::max<size_t>(std::min(limits.sequences, limits.rows), recorded);
  const size_t logit_rows = std::max<size_t>(limits.logit_rows, recorded);
  const size_t pairs = limits.layout.head_dim / 2;
  const size_t blocks = limits.layout.BlocksFor(limits.context);
  StepMemory memory;
  // Bytes that StepUpload::Begin uploads.
  memory.step =
      UploadSlab::CapacityFor(kWord * (3 * rows + logit_rows + sequences * (pairs + blocks)) +
                              sequences * (sizeof(DeviceSequence) + sizeof(DeviceRope)));
  memory.logit_rows = UploadSlab::CapacityFor(logit_rows * kWord);
  memory.rope_table = 2 * rows * pairs * sizeof(float);
  memory.gathered = 2 * logit_rows * limits.hidden;
  memory.logits = logit_rows * limits.vocab * sizeof(float);
  memory.sample_rows = static_cast<int>(logit_rows);
  memory.vocab = limits.vocab;
  CountSplitAttention(limits, shared_bytes, static_cast<int64_t>(max_partial_bytes), &memory);
  return memory;
}

std::vector<size_t> StepMemory::Attention() const {
  std::vector<size_t> allocations = {attention_plan, attention_partials};
  for (size_t i = 0; i < std::min(fixed_plans.size(), kMaxFixedPlans); ++i) {
    allocations.push_back(fixed_plans[i].bytes);
  }
  return allocations;
}

std::vector<size_t> StepMemory::Samples() const {
  return StepSamples::Allocations(sample_rows, vocab);
}

size_t ActivationBytes(int rows, int cols) {
  const size_t stride = (size_t(cols) + 7) / 8 * 8;
  return size_t{2} * std::max(rows, 1) * stride;
}

}  // namespace baton
