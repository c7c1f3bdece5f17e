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

// Uploads what a step's kernels need to know about its rows: sequences, positions and block tables.
// Also computes the rotary tables, on the device and once for all layers. Arguments have passed the
// checks of op_checks.h. Content that was uploaded last time is not uploaded again.
class StepUpload {
 public:
  // The arguments must outlive this object.
  StepUpload(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels)
      : runtime_(runtime),
        stream_(stream),
        kernels_(kernels),
        step_slab_(runtime, stream),
        rows_slab_(runtime, stream),
        ropes_slab_(runtime, stream),
        table_(runtime) {}

  // Allocates the memory that `memory` counts, so that steps within the limits of StepMemory::For
  // allocate nothing. Returns ResourceExhausted if there is too little memory.
  absl::Status Reserve(const StepMemory& memory);

  // Uploads a whole step in one copy: tokens, `follows` (the rows whose token the previous step
  // samples), sequences, rotary tables and logit rows. After this, rows() and RopeTable() return
  // views of the uploaded data. If `tokens` has more rows than the step, the additional ones are
  // padding rows. Set `fixed` for a step that may be recorded as a graph. Logit rows are then left
  // out, and the addresses depend only on the number of `tokens`, as long as AppendMemory appends
  // the same addresses. Returns InvalidArgument if two sequences have the same row.
  absl::Status Begin(const StepArgs& step, absl::Span<const TokenId> tokens, bool fixed);
  // Must be called before the operations of a step are called a second time, for example after a
  // failed recording. Work that the first call enqueued may never have run, so its results, such as
  // the rotary table, are computed again.
  void BeginAgain() {
    ++rows_version_;
    ++ropes_version_;
  }
  // Device addresses of arrays that Begin uploaded for the step that began last.
  struct Tables {
    const int32_t* tokens = nullptr;
    const int32_t* follows = nullptr;
    const int32_t* logit_rows = nullptr;
  };
  const Tables& tables() const { return tables_; }
  // Appends to `memory` what the kernels of a recorded step (a CUDA graph) get from this object:
  // the addresses of the uploaded arrays and of the rotary table, and the table's shape. The
  // addresses change when memory grows.
  void AppendMemory(std::vector<uint64_t>* memory) const;

  // The rows of the step that began last. Rows() replaces them, so it must not be called before the
  // step's operations have been called.
  const StepRows& rows() const { return rows_; }
  // Uploads the rows of an operation outside of a step. The result is valid until the next call of
  // Rows. Returns InvalidArgument if two sequences have the same row.
  absl::StatusOr<StepRows> Rows(absl::Span<const SequenceRows> sequences, int rows,
                                const KvLayout& layout);

  // Number, never 0, that changes whenever Begin or Rows may have changed the rows that rows()
  // returns.
  uint64_t rows_version() const { return rows_version_; }

  struct Ropes {
    const DeviceRope* ropes = nullptr;
    const float* table = nullptr;
    int max_pairs = 0;
    bool shared = false;
  };
  // Uploads the rotary embeddings (Rope) of an operation that belongs to no step.
  absl::Status UploadRopes(absl::Span<const Rope> ropes);
  // Returns the table of rotary angles for the rows and rope settings that were uploaded last.
  // Computes the table at the first call after an upload.
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
  // Increased whenever rows_ or ropes_ may have changed.
  uint64_t rows_version_ = 0, ropes_version_ = 0;
  // rows_ and ropes_ usually point into memory of rows_slab_ and ropes_slab_. These numbers are the
  // versions of that memory (UploadSlab::version). 0 means that rows_ or ropes_ points into memory
  // of step_slab_ instead.
  uint64_t rows_slab_version_ = 0, ropes_slab_version_ = 0;
  uint64_t table_of_rows_ = 0, table_of_ropes_ = 0;
  StepRows rows_;
  Ropes ropes_;
  const float* frequencies_ = nullptr;
  Tables tables_;
  std::vector<int32_t> content_;  // scratch memory for the content of an upload
};

}  // namespace baton
