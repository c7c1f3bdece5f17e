#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <tuple>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "kernels/device/cuda/cublas_lt.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// GEMMs by cuBLASLt. The row counts are grouped into buckets (powers of two). Asks cuBLASLt
// for an algorithm once per shape and bucket, and keeps the algorithm. So a row is summed in the
// same order in all batches of a bucket, and most steps do not have to ask. (If an algorithm cannot
// do the exact number of rows, that number gets its own algorithm.) All sums are float throughout,
// also the partial sums of split-k GEMMs. Any thread.
class CudaGemms {
 public:
  // Workspace bytes for each stream that calls Run. Split-k GEMMs keep their partial sums in the
  // workspace.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // Returns FailedPrecondition if there is no cuBLASLt.
  static absl::StatusOr<std::unique_ptr<CudaGemms>> Create();
  ~CudaGemms();
  CudaGemms(const CudaGemms&) = delete;
  CudaGemms& operator=(const CudaGemms&) = delete;

  // Makes cuBLASLt ready for the current device, which takes memory and time. Further calls do
  // nothing. If no thread has called Begin(), the first Run does; that Run must not be in a
  // capture.
  absl::Status Begin();

  // Runs a GEMM. The caller has checked the arguments of `gemm`, which has at least one row. All
  // calls must be for the device of the first call. No other stream may use `workspace` at the same
  // time. After Begin(), Run allocates nothing on the device and does not wait, so a capture may
  // contain it.
  absl::Status Run(const DenseGemm& gemm, void* workspace, cudaStream_t stream);

 private:
  // Key of an algorithm: the number of rows (rounded up to a power of two, or exact), n, k,
  // strides, type, accumulate, the alignments of weight, in and out, and DenseGemm::algorithm.
  using Key =
      std::tuple<int, int, int, int64_t, int64_t, DType, bool, uint32_t, uint32_t, uint32_t, int>;
  struct Matmul;

  CudaGemms() = default;
  absl::StatusOr<cublasLtMatmulAlgo_t> Algorithm(const DenseGemm& gemm, int rows);

  std::shared_ptr<const CublasLt> lt_;
  Mutex mutex_;
  std::atomic<cublasLtHandle_t> handle_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
