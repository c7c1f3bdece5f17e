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

// Dense products by cuBLASLt. Which of its algorithms a product takes is asked once for each bucket
// of rows (powers of two) and shape, and kept: so a row's sum has the same order for all batches of
// a bucket, and a step asks nothing. Sums, also those of split ones, are float throughout. Any
// thread.
class CudaProducts {
 public:
  // Of each stream that calls Run: what split sums may take.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // FailedPrecondition without cuBLASLt.
  static absl::StatusOr<std::unique_ptr<CudaProducts>> Create();
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // Makes cuBLASLt ready for the current device, which takes memory and time; again, nothing. The
  // first Run does it too, where it must not be in a capture.
  absl::Status Begin();

  // Arguments checked; rows at least 1. On the device of the first call. `workspace` is not used by
  // other streams meanwhile. Begun, it allocates nothing on the device and waits for nothing: fine
  // in a capture.
  absl::Status Run(const DenseProduct& product, void* workspace, cudaStream_t stream);

 private:
  // Rows (of the bucket, or exactly), n, k, strides, type, accumulate, the alignments of in, weight
  // and out, and DenseProduct::algorithm.
  using Key =
      std::tuple<int, int, int, int64_t, int64_t, DType, bool, uint32_t, uint32_t, uint32_t, int>;
  struct Matmul;

  CudaProducts() = default;
  absl::StatusOr<cublasLtMatmulAlgo_t> Algorithm(const DenseProduct& product, int rows);

  std::shared_ptr<const CublasLt> lt_;
  Mutex mutex_;
  std::atomic<cublasLtHandle_t> handle_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
