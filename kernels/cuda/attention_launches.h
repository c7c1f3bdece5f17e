#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/step_memory.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Enqueues the attention of steps on a stream, with the kernels that attention_choice.h chooses,
// and owns the extra memory that these kernels need. In each step, prefill attention computes the
// sequences with many rows, such as prompt chunks, and split attention computes the sequences with
// few rows. The plan of split attention is made on the device, once for all layers of a step that
// have the same window. If the partial results of all rows would exceed `max_partial_bytes`, the
// rows are computed in several parts, one after another. Each part has at least one tile of rows.
class AttentionLaunches {
 public:
  // The arguments must outlive this object.
  AttentionLaunches(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels,
                    size_t max_partial_bytes = kMaxAttentionPartialBytes)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        max_partial_bytes_(max_partial_bytes),
        plans_(runtime),
        partial_memory_(runtime) {}

  // Allocates the memory that `memory` counts. Steps within the limits that were given to
  // StepMemory::For then allocate nothing. Returns ResourceExhausted if there is too little memory.
  absl::Status Reserve(const StepMemory& memory);

  // A step of one row per sequence, enqueued in a form that stays valid while the sequences grow.
  // Its memory and grids are large enough for `rows` sequences of `context` positions, or are as
  // large as `max_partial_bytes` allows.
  struct FixedStep {
    int rows = 0;
    int context = 0;
    // Number of ranges of kAttentionRange keys, summed over all sequences at their present lengths.
    int64_t ranges = 0;
  };
  // Returns true if the partial results of the step fit into memory. Always returns true before the
  // first call of Attend with a FixedStep, because the size of a partial result is not known yet.
  bool HasRoom(const FixedStep& step) const {
    return tile_bytes_ == 0 || step.ranges <= MaxItems(step);
  }

  // Enqueues attention of one layer. `params.step` holds the rows of `sequences`. `version` is a
  // number above 0 that the caller changes whenever the rows in `params.step` may have changed.
  // `fixed` is given for a step that is recorded as a graph. If HasRoom(*fixed) is true, the
  // enqueued work depends only on `params`, on the rows and context of `fixed`, and on the
  // addresses that AppendMemory appends. Returns ResourceExhausted if there is no memory for
  // partial results.
  absl::Status Attend(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                      uint64_t version, const FixedStep* fixed = nullptr);

  // Appends the addresses of the memory that a FixedStep (a step that can be recorded as a graph)
  // uses. The addresses change when this memory grows.
  void AppendMemory(std::vector<uint64_t>* memory) const;

 private:
  // Rows that are planned and computed together.
  struct Part {
    AttentionPlanParams plan;
    int64_t items;
  };
  // The plans (lists of work items) of split attention for one window size, in device memory.
  struct Plans {
    explicit Plans(DeviceRuntime* runtime) : memory(runtime) {}
    std::vector<Part> parts;
    DeviceBuffer memory;
    // Values for which the plans were made. `version` identifies the rows of the step.
    uint64_t version = 0;
    int window = 0, prefill_rows = 0, tile_rows = 0;
    int64_t line_bytes = 0;
  };

  int64_t MaxItems(const FixedStep& step) const;
  Plans& FixedPlansOf(int window);
  void CutIntoParts(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                    int prefill_rows, int tile_rows, std::vector<Part>* parts) const;
  // Enqueues split attention of the sequences with fewer rows than `prefill_rows`. The longest of
  // these sequences has `max_rows` rows.
  absl::Status AttendSplit(const PagedAttentionParams& params,
                           absl::Span<const SequenceRows> sequences, uint64_t version,
                           const FixedStep* fixed, int prefill_rows, int max_rows);
  absl::Status MakePlans(Plans* plans);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  const size_t max_partial_bytes_;
  // Bytes of one row's partial results in one range of keys. Set by each call of Attend that gets a
  // FixedStep.
  int64_t tile_bytes_ = 0;
  Plans plans_;
  std::vector<std::unique_ptr<Plans>> fixed_plans_;  // plans of fixed steps, one entry per window
  DeviceBuffer partial_memory_;
};

}  // namespace baton
