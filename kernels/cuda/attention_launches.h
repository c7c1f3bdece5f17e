#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/kernels.h"

namespace baton {

// Puts attention of a step on a stream, by the kernels that attention_choice.h names, with the
// memory that they need beside it. A plan is made on the device once for all layers of a step that
// have the same window. Rows whose partial results would take more memory than they may are done
// one part after another; a part is a tile of rows at least.
class AttentionLaunches {
 public:
  // All must outlive this.
  AttentionLaunches(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels,
                    size_t most_partial_bytes = size_t{64} << 20)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        most_partial_bytes_(most_partial_bytes),
        plan_memory_(runtime),
        partial_memory_(runtime) {}

  // `params.step` holds `sequences`; it is what it was at the last call exactly if `version`, which
  // is not 0, is. ResourceExhausted when there is no memory for partial results.
  absl::Status Attend(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                      uint64_t version);

 private:
  // Rows that are planned and done together.
  struct Part {
    AttentionPlanParams plan;
    int64_t items;
  };

  void CutIntoParts(const PagedAttentionParams& params, absl::Span<const SequenceRows> sequences,
                    int tile_rows);
  absl::Status MakePlans();

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  const size_t most_partial_bytes_;
  DeviceBuffer plan_memory_, partial_memory_;
  std::vector<Part> parts_;
  // What parts_ and the plans on the device are for.
  uint64_t version_ = 0;
  int window_ = 0, tile_rows_ = 0;
  int64_t line_bytes_ = 0;
};

}  // namespace baton
