#include "kernels/cuda/attention_launches.h"

#include <algorithm>

#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/launches.h"

namespace baton {
namespace {

// A full wave of the largest devices at every head_dim, and few enough for a short step.
constexpr int64_t kMostBlocks = 2048;

// Of values and sums of one row and head in one range.
int64_t LineBytes(const PagedAttentionParams& params) {
  return (params.pages.head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

// As attention_plan.cu counts: items of whole tiles, in the order of rows.
void AttentionLaunches::CutIntoParts(const PagedAttentionParams& params,
                                     absl::Span<const SequenceRows> sequences, int tile_rows) {
  std::vector<const SequenceRows*> in_order;
  for (const SequenceRows& sequence : sequences) {
    if (sequence.rows > 0) in_order.push_back(&sequence);
  }
  std::sort(in_order.begin(), in_order.end(), [](const SequenceRows* a, const SequenceRows* b) {
    return a->first_row < b->first_row;
  });
  const int64_t tile_bytes =
      LineBytes(params) * tile_rows * params.heads;  // of a tile in one range
  const int64_t most_items =
      std::max<int64_t>(static_cast<int64_t>(most_partial_bytes_) / tile_bytes, 1);
  parts_.clear();
  int begin = 0;  // of the part that is being made
  int64_t items = 0;
  const auto end_part = [&](int end) {
    Part part = {.plan = {.step = params.step,
                          .first_row = begin,
                          .rows = end - begin,
                          .tile_rows = tile_rows,
                          .window = params.window},
                 .items = items};
    if (items > 0) parts_.push_back(part);
    begin = end;
    items = 0;
  };
  for (const SequenceRows* sequence : in_order) {
    for (int i = 0; i < sequence->rows; i += tile_rows) {
      const int position = sequence->first_position + i;
      const int last = position + std::min(tile_rows, sequence->rows - i) - 1;
      const int first =
          params.window > 0 && position >= params.window ? position + 1 - params.window : 0;
      const int64_t ranges = last / kAttentionRange + 1 - first / kAttentionRange;
      if (items > 0 && items + ranges > most_items) end_part(sequence->first_row + i);
      items += ranges;
    }
  }
  end_part(params.step.rows);
}

absl::Status AttentionLaunches::MakePlans() {
  int64_t words = 0;
  for (const Part& part : parts_) words += part.plan.rows + 1 + 2 * part.items;
  const auto memory = plan_memory_.AtLeast(words * sizeof(int32_t));
  if (!memory.ok()) return memory.status();
  auto* next = reinterpret_cast<int32_t*>(*memory);
  for (Part& part : parts_) {
    part.plan.items = reinterpret_cast<AttentionItem*>(next);
    part.plan.first_item = next + 2 * part.items;
    next = part.plan.first_item + part.plan.rows + 1;
    if (absl::Status status =
            runtime_->Launch(kernels_->attention_plan, LaunchOf(part.plan), part.plan, *stream_);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status AttentionLaunches::Attend(const PagedAttentionParams& params,
                                       absl::Span<const SequenceRows> sequences, uint64_t version) {
  int most_rows = 1;
  for (const SequenceRows& sequence : sequences) most_rows = std::max(most_rows, sequence.rows);
  switch (ChooseAttention(params, most_rows, runtime_->info().shared_bytes)) {
    case AttentionKernel::kPaged:
      return runtime_->Launch(kernels_->paged_attention, LaunchOf(params), params, *stream_);
    case AttentionKernel::kPrefill: {
      const PrefillAttentionParams prefill = {
          .attention = params,
          .rows = {.step = params.step,
                   .rows = params.step.rows,
                   .tile_rows = AttentionTileRows(params) * kPrefillAttentionWarps,
                   .window = params.window}};
      return runtime_->Launch(
          kernels_->prefill_attention[AttentionHeadDimIndex(params.pages.head_dim)],
          LaunchOf(prefill), prefill, *stream_);
    }
    case AttentionKernel::kSplit:
      break;
  }
  const int tile_rows = std::min(AttentionTileRows(params), most_rows);
  const int64_t line_bytes = LineBytes(params) * params.heads;
  if (version != version_ || params.window != window_ || tile_rows != tile_rows_ ||
      line_bytes != line_bytes_) {
    version_ = 0;  // until it is done
    CutIntoParts(params, sequences, tile_rows);
    if (absl::Status status = MakePlans(); !status.ok()) return status;
    version_ = version;
    window_ = params.window;
    tile_rows_ = tile_rows;
    line_bytes_ = line_bytes;
  }

  const LayerPages& pages = params.pages;
  const int group = params.heads / pages.kv_heads;
  int64_t most_items = 0;
  for (const Part& part : parts_) most_items = std::max(most_items, part.items);
  const int64_t lines = most_items * pages.kv_heads * tile_rows * group;
  const auto memory = partial_memory_.AtLeast(lines * LineBytes(params));
  if (!memory.ok()) return memory.status();
  for (const Part& part : parts_) {
    SplitAttentionParams split = {
        .attention = params,
        .plan = part.plan,
        .blocks = static_cast<int32_t>(std::min(part.items * pages.kv_heads, kMostBlocks)),
        .values = reinterpret_cast<float*>(*memory),
        .sums = reinterpret_cast<float*>(*memory) + lines * pages.head_dim};
    if (absl::Status status =
            runtime_->Launch(kernels_->split_attention[AttentionHeadDimIndex(pages.head_dim)],
                             LaunchOf(split), split, *stream_);
        !status.ok()) {
      return status;
    }
    if (absl::Status status =
            runtime_->Launch(kernels_->merge_attention, MergeLaunchOf(split), split, *stream_);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
