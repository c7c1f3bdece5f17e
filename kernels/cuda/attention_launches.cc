#include "kernels/cuda/attention_launches.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/kernels/launches.h"

namespace baton {
namespace {

// Max thread blocks of a launch: enough to fill the largest devices at every head_dim, but few
// enough for a short step.
constexpr int64_t kMaxBlocks = 2048;
// Max thread blocks per multiprocessor in a recorded step. The grid of such a step is large
// enough for the longest sequences, so most blocks may find nothing to do.
constexpr int64_t kMaxBlocksOfMultiprocessor = 16;

int64_t LineBytes(const PagedAttentionParams& params) {
  return AttentionLineBytes(params.pages.head_dim);
}

}  // namespace

absl::Status AttentionLaunches::Reserve(const StepMemory& memory) {
  plans_.version = 0;  // growing the memory loses the plan in it
  auto got = plans_.memory.AtLeast(memory.attention_plan);
  for (size_t i = 0; i < memory.fixed_plans.size() && i < kMaxFixedPlans && got.ok(); ++i) {
    Plans& plans = FixedPlansOf(memory.fixed_plans[i].window);
    plans.version = 0;
    got = plans.memory.AtLeast(memory.fixed_plans[i].bytes);
  }
  RETURN_IF_ERROR(got.status());
  return partial_memory_.AtLeast(memory.attention_partials).status();
}

// Cuts the rows, in order, into parts that are computed together. A part consists of whole tiles of
// rows. Counts the work items of a part in the same way as attention_plan.cu, which makes them.
void AttentionLaunches::CutIntoParts(const PagedAttentionParams& params,
                                     absl::Span<const SequenceRows> sequences, int prefill_rows,
                                     int tile_rows, std::vector<Part>* parts) const {
  std::vector<const SequenceRows*> in_order;
  for (const SequenceRows& sequence : sequences) {
    if (sequence.rows > 0 && sequence.rows < prefill_rows) in_order.push_back(&sequence);
  }
  std::sort(in_order.begin(), in_order.end(), [](const SequenceRows* a, const SequenceRows* b) {
    return a->first_row < b->first_row;
  });
  const int64_t tile_bytes =
      // Bytes of partial results of one tile in one range.
      LineBytes(params) * tile_rows * params.heads;
  const int64_t max_items =
      std::max<int64_t>(static_cast<int64_t>(max_partial_bytes_) / tile_bytes, 1);
  parts->clear();
  // First row of the part that is being made. A part is a group of rows that are computed together.
  int begin = in_order.empty() ? 0 : in_order.front()->first_row;
  int64_t items = 0;
  const auto end_part = [&](int end) {
    Part part = {.plan = {.step = params.step,
                          .first_row = begin,
                          .rows = end - begin,
                          .prefill_rows = prefill_rows,
                          .tile_rows = tile_rows,
                          .window = params.window},
                 .items = items};
    if (items > 0) parts->push_back(part);
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
      if (items > 0 && items + ranges > max_items) end_part(sequence->first_row + i);
      items += ranges;
    }
  }
  if (!in_order.empty()) end_part(in_order.back()->first_row + in_order.back()->rows);
}

int64_t AttentionLaunches::MaxItems(const FixedStep& step) const {
  const int64_t ranges = (int64_t{step.context} + kAttentionRange - 1) / kAttentionRange;
  return std::min(step.rows * ranges,
                  std::max<int64_t>(static_cast<int64_t>(max_partial_bytes_) / tile_bytes_, 1));
}

// Returns the plans (lists of work items) of this window. At most kMaxFixedPlans windows have
// plans. If all of these are taken, the window that has had its plans for longest gives them up,
// and must make them again when it is next used.
AttentionLaunches::Plans& AttentionLaunches::FixedPlansOf(int window) {
  for (const auto& plans : fixed_plans_) {
    if (plans->window == window) return *plans;
  }
  if (fixed_plans_.size() == kMaxFixedPlans) {
    std::rotate(fixed_plans_.begin(), fixed_plans_.begin() + 1, fixed_plans_.end());
  } else {
    fixed_plans_.push_back(std::make_unique<Plans>(runtime_));
  }
  fixed_plans_.back()->version = 0;
  fixed_plans_.back()->window = window;
  return *fixed_plans_.back();
}

void AttentionLaunches::AppendMemory(std::vector<uint64_t>* memory) const {
  memory->push_back(reinterpret_cast<uintptr_t>(partial_memory_.data()));
  const size_t first = memory->size();
  for (const auto& plans : fixed_plans_) {
    memory->push_back(reinterpret_cast<uintptr_t>(plans->memory.data()));
  }
  // Sorts the addresses. A recorded step makes its own plans, so it does not matter which window
  // uses which memory.
  std::sort(memory->begin() + first, memory->end());
}

absl::Status AttentionLaunches::MakePlans(Plans* plans) {
  int64_t words = 0;
  for (const Part& part : plans->parts) words += part.plan.rows + 1 + 2 * part.items;
  ASSIGN_OR_RETURN(const auto memory, plans->memory.AtLeast(words * sizeof(int32_t)));
  auto* next = reinterpret_cast<int32_t*>(memory);
  for (Part& part : plans->parts) {
    part.plan.items = reinterpret_cast<AttentionItem*>(next);
    part.plan.first_item = next + 2 * part.items;
    next = part.plan.first_item + part.plan.rows + 1;
    RETURN_IF_ERROR(
        runtime_->Launch(kernels_->attention_plan, LaunchOf(part.plan), part.plan, *stream_));
  }
  return absl::OkStatus();
}

absl::Status AttentionLaunches::Attend(const PagedAttentionParams& params,
                                       absl::Span<const SequenceRows> sequences, uint64_t version,
                                       const FixedStep* fixed) {
  const size_t shared_bytes = runtime_->info().shared_bytes;
  if (!UsesTensorCores(params, shared_bytes)) {
    return runtime_->Launch(kernels_->paged_attention, LaunchOf(params), params, *stream_);
  }
  PrefillAttentionParams prefill = {
      .attention = params,
      .sequences = static_cast<int32_t>(sequences.size()),
      .prefill_rows = PrefillAttentionRows(params, shared_bytes),
      .tile_rows = AttentionTileRows(params) * kPrefillAttentionWarps};
  int max_split_rows = 0;  // rows of the longest sequence that split attention computes
  for (const SequenceRows& sequence : sequences) {
    if (sequence.rows >= prefill.prefill_rows) {
      prefill.tiles += TilesOf(sequence.rows, prefill.tile_rows);
    } else {
      max_split_rows = std::max(max_split_rows, sequence.rows);
    }
  }
  if (prefill.tiles > 0) {
    RETURN_IF_ERROR(
        runtime_->Launch(kernels_->prefill_attention[AttentionKernelIndex(params.pages)],
                         LaunchOf(prefill), prefill, *stream_));
  }
  if (max_split_rows == 0) return absl::OkStatus();
  return AttendSplit(params, sequences, version, fixed, prefill.prefill_rows, max_split_rows);
}

absl::Status AttentionLaunches::AttendSplit(const PagedAttentionParams& params,
                                            absl::Span<const SequenceRows> sequences,
                                            uint64_t version, const FixedStep* fixed,
                                            int prefill_rows, int max_rows) {
  const int tile_rows = std::min(AttentionTileRows(params), max_rows);
  const int64_t line_bytes = LineBytes(params) * params.heads;
  bool is_fixed = false;
  if (fixed != nullptr) {
    tile_bytes_ = line_bytes;
    is_fixed = max_rows == 1 && HasRoom(*fixed);
  }
  Plans& plans = is_fixed ? FixedPlansOf(params.window) : plans_;
  if (version != plans.version || params.window != plans.window ||
      prefill_rows != plans.prefill_rows || tile_rows != plans.tile_rows ||
      line_bytes != plans.line_bytes) {
    plans.version = 0;  // stays 0 if making the plans fails
    if (is_fixed) {
      plans.parts = {{.plan = {.step = params.step,
                               .first_row = 0,
                               .rows = params.step.rows,
                               .prefill_rows = prefill_rows,
                               .tile_rows = 1,
                               .window = params.window},
                      .items = MaxItems(*fixed)}};
    } else {
      CutIntoParts(params, sequences, prefill_rows, tile_rows, &plans.parts);
    }
    RETURN_IF_ERROR(MakePlans(&plans));
    plans.version = version;
    plans.window = params.window;
    plans.prefill_rows = prefill_rows;
    plans.tile_rows = tile_rows;
    plans.line_bytes = line_bytes;
  }

  const LayerPages& pages = params.pages;
  const int group = params.heads / pages.kv_heads;
  int64_t max_items = 0;
  for (const Part& part : plans.parts) max_items = std::max(max_items, part.items);
  const int64_t lines = max_items * pages.kv_heads * tile_rows * group;
  ASSIGN_OR_RETURN(const auto memory, partial_memory_.AtLeast(lines * LineBytes(params)));
  const int64_t max_blocks =
      is_fixed ? std::min(kMaxBlocks, kMaxBlocksOfMultiprocessor * runtime_->info().multiprocessors)
               : kMaxBlocks;
  for (const Part& part : plans.parts) {
    SplitAttentionParams split = {
        .attention = params,
        .plan = part.plan,
        .blocks = static_cast<int32_t>(std::min(part.items * pages.kv_heads, max_blocks)),
        .values = reinterpret_cast<float*>(memory),
        .sums = reinterpret_cast<float*>(memory) + lines * pages.head_dim};
    RETURN_IF_ERROR(runtime_->Launch(kernels_->split_attention[AttentionKernelIndex(pages)],
                                     LaunchOf(split), split, *stream_));
    RETURN_IF_ERROR(
        runtime_->Launch(kernels_->merge_attention, MergeLaunchOf(split), split, *stream_));
  }
  return absl::OkStatus();
}

}  // namespace baton
