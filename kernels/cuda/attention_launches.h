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

// Enqueues attention of a step on a stream, with the kernels that attention_choice.h names, and
// owns the memory that they need beside the step's. In a step that holds prompt chunks and running
// sequences, prefill attention computes the chunks and split attention the others. A plan is made
// on the device once for all layers of a step that have the same window. Rows whose partial results
// would take more memory than they may are computed one part after another; a part has at least one
// tile of rows.
class AttentionLaunches {
 public:
  // All must outlive this.
  AttentionLaunches(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels,
                    size_t most_partial_bytes = kMostAttentionPartialBytes)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        most_partial_bytes_(most_partial_bytes),
        plans_(runtime),
        partial_memory_(runtime) {}

  // What steps of which StepMemory tells need. ResourceExhausted.
  absl::Status Reserve(const StepMemory& memory);

  // A step of one row of each sequence, put so that it is right for any lengths: memory and grids
  // are those of `rows` sequences of `context` positions, or what there may be of it.
  struct FixedStep {
    int rows = 0;
    int context = 0;
    int64_t ranges = 0;  // of kAttentionRange keys, of all sequences as they are now
  };
  // Whether it has room for them; it may learn otherwise from the first Attend.
  bool HasRoom(const FixedStep& step) const {
    return tile_bytes_ == 0 || step.ranges <= MostItems(step);
  }

  // `params.step` holds `sequences`; it is what it was at the last call exactly if `version`, which
  // is not 0, is. With `fixed`, what is put depends on `params`, rows and context of `fixed` and
  // memory() alone, if there is room. ResourceExhausted when there is no memory for partial
  // results.
  absl::Status Attend(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                      uint64_t version, const FixedStep* fixed = nullptr);

  // Where what fixed steps use is; it moves when it grows.
  void AppendMemory(std::vector<uint64_t>* memory) const;

 private:
  // Rows that are planned and done together.
  struct Part {
    AttentionPlanParams plan;
    int64_t items;
  };
  // Of one window, on the device.
  struct Plans {
    explicit Plans(DeviceRuntime* runtime) : memory(runtime) {}
    std::vector<Part> parts;
    DeviceBuffer memory;
    // What they are for.
    uint64_t version = 0;
    int window = 0, prefill_rows = 0, tile_rows = 0;
    int64_t line_bytes = 0;
  };

  int64_t MostItems(const FixedStep& step) const;
  Plans& FixedPlansOf(int window);
  void CutIntoParts(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                    int prefill_rows, int tile_rows, std::vector<Part>* parts) const;
  // Enqueues split attention of the sequences with fewer rows than `prefill_rows`, the longest of
  // which has `most_rows`.
  absl::Status AttendSplit(const PagedAttentionParams& params,
                           absl::Span<const SequenceRows> sequences, uint64_t version,
                           const FixedStep* fixed, int prefill_rows, int most_rows);
  absl::Status MakePlans(Plans* plans);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  const size_t most_partial_bytes_;
  int64_t tile_bytes_ = 0;  // of partial results of a row's range, when Attend was last called
  Plans plans_;
  std::vector<std::unique_ptr<Plans>> fixed_plans_;  // by window
  DeviceBuffer partial_memory_;
};

}  // namespace baton
