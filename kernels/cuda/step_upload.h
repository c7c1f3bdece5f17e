#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/step_memory.h"
#include "kernels/cuda/upload_slab.h"

namespace baton {

// What a step's kernels have to know of its rows: sequences, positions and block tables, and the
// rotary tables, which are computed on the device once for all layers. Arguments have passed
// op_checks.h. Only what differs from the last upload is brought to the device.
class StepUpload {
 public:
  // All must outlive this.
  StepUpload(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        step_slab_(runtime, stream),
        rows_slab_(runtime, stream),
        ropes_slab_(runtime, stream),
        table_(runtime) {}

  // What steps of which StepMemory tells need. ResourceExhausted.
  absl::Status Reserve(const StepMemory& memory);

  // A whole step in one copy: its tokens, which rows follow, sequences and ropes, for Rows and
  // RopeTable with the step's views, and rows of logits. `tokens` may have more rows than the step:
  // they are nobody's. With `fixed`, where things lie depends on the number of `tokens` alone,
  // while memory() is the same; logit rows are then left out. InvalidArgument when two sequences
  // have the same row.
  absl::Status Begin(const StepArgs& step, absl::Span<const TokenId> tokens, bool fixed);
  // Its operations are called once more, and what they launched before may never run.
  void BeginAgain() {
    ++rows_version_;
    ++ropes_version_;
  }
  // Of the step that began last.
  struct Tables {
    const int32_t* tokens = nullptr;
    const int32_t* follows = nullptr;
    const int32_t* logit_rows = nullptr;
  };
  const Tables& tables() const { return tables_; }
  // What kernels of such a step are given beside that: where memory is, which moves when it grows,
  // and the form of the rotary tables.
  void AppendMemory(std::vector<uint64_t>* memory) const;

  // The rows of the step that began last. Rows() is not called until its operations have been.
  const StepRows& rows() const { return rows_; }
  // The rows of an operation outside of a step, good until the next call. InvalidArgument when two
  // sequences have the same row.
  absl::StatusOr<StepRows> Rows(absl::Span<const SequenceRows> sequences, int rows,
                                const KvLayout& layout);

  // Changes whenever the rows of Begin or Rows may be others than before; not 0.
  uint64_t rows_version() const { return rows_version_; }

  struct Ropes {
    const DeviceRope* ropes = nullptr;
    const float* table = nullptr;
    int max_pairs = 0;
    bool shared = false;
  };
  // The ropes of an operation outside of a step.
  absl::Status UploadRopes(absl::Span<const Rope> ropes);
  // The table of the rows and ropes that are there: those of the step that began last, or else of
  // Rows and UploadRopes.
  absl::StatusOr<Ropes> RopeTable();

 private:
  absl::Status PutRows(absl::Span<const SequenceRows> sequences, int rows, const KvLayout& layout,
                       size_t owners, size_t places, size_t tables);
  void PutRopes(absl::Span<const Rope> ropes, size_t heads, size_t frequencies);
  absl::StatusOr<const int32_t*> Upload(UploadSlab* slab);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  UploadSlab step_slab_, rows_slab_, ropes_slab_;
  DeviceBuffer table_;
  // Versions go up whenever the rows or ropes below may be others than before.
  uint64_t rows_version_ = 0, ropes_version_ = 0;
  uint64_t rows_slab_version_ = 0, ropes_slab_version_ = 0;  // that these were of; 0: of none
  uint64_t table_of_rows_ = 0, table_of_ropes_ = 0;
  StepRows rows_;
  Ropes ropes_;
  const float* frequencies_ = nullptr;
  Tables tables_;
  std::vector<int32_t> content_;  // of an upload; kept for its memory
};

}  // namespace baton
