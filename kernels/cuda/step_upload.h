#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/upload_slab.h"

namespace baton {

// What a step's kernels have to know of its rows: sequences, positions and block tables, and the
// rotary tables, which are computed on the device once for all layers. Arguments have passed
// op_checks.h. They are views of what stays as it is until ForgetViews: the same view again is not
// read again, and of another one what differs is brought to the device.
class StepUpload {
 public:
  // All must outlive this.
  StepUpload(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        rows_slab_(runtime, stream),
        ropes_slab_(runtime, stream),
        table_(runtime) {}

  // InvalidArgument when two sequences have the same row. What is returned is good until the next
  // call.
  absl::StatusOr<StepRows> Rows(absl::Span<const SequenceRows> sequences, int rows,
                                const KvLayout& layout);

  // Of what Rows gave last; not 0.
  uint64_t rows_version() const { return rows_slab_.version(); }

  struct Ropes {
    const DeviceRope* ropes = nullptr;
    const float* table = nullptr;
    int max_pairs = 0;
    bool shared = false;
  };
  // For the sequences of `step`, which Rows gave last.
  absl::StatusOr<Ropes> RopeTable(absl::Span<const Rope> ropes, const StepRows& step);

  // What was passed need not live any longer.
  void ForgetViews();

 private:
  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  UploadSlab rows_slab_, ropes_slab_;
  DeviceBuffer table_;
  uint64_t table_of_rows_ = 0, table_of_ropes_ = 0;  // versions of the slabs
  // The latest views, and what they gave. Empty: none.
  absl::Span<const SequenceRows> rows_view_;
  int block_tokens_ = 0;
  StepRows rows_;
  absl::Span<const Rope> ropes_view_;
  Ropes ropes_;
  // Kept for their memory.
  std::vector<int32_t> rows_content_;
  std::vector<std::byte> ropes_content_;
};

}  // namespace baton
