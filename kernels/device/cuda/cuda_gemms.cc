#include "kernels/device/cuda/cuda_gemms.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Returns the alignment of an address: the largest power of two that divides it, but at most 16,
// because cuBLASLt needs no more.
uint32_t Alignment(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address % 16 == 0 ? 16 : 1u << std::countr_zero(address);
}

}  // namespace

// Describes one GEMM to cuBLASLt. cuBLASLt stores matrices by columns, so our rows are its columns,
// and it computes out^T [n, rows] = weight [n, k] * in^T [k, rows].
struct CudaGemms::Matmul {
  absl::Status Init(const CublasLt& lt, const DenseGemm& p, int rows) {
    const cudaDataType_t out_type = p.out_type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    for (const cublasStatus_t status :
         {lt.MatmulDescInit(&operation, sizeof(operation), CUBLAS_COMPUTE_32F, CUDA_R_32F),
          lt.MatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                    sizeof(transposed)),
          lt.MatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof(plain)),
          lt.MatrixLayoutInit(&weight, sizeof(weight), CUDA_R_16BF, p.k, p.n, p.k),
          lt.MatrixLayoutInit(&in, sizeof(in), CUDA_R_16BF, p.k, rows, p.in_stride),
          lt.MatrixLayoutInit(&out, sizeof(out), out_type, p.n, rows, p.out_stride)}) {
      if (status != CUBLAS_STATUS_SUCCESS) return lt.Status(status, "cublasLt descriptor");
    }
    return absl::OkStatus();
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t weight, in, out;
};

absl::StatusOr<std::unique_ptr<CudaGemms>> CudaGemms::Create() {
  ASSIGN_OR_RETURN(auto lt, CublasLt::Load());
  std::unique_ptr<CudaGemms> gemms(new CudaGemms);
  gemms->lt_ = std::move(lt);
  return gemms;
}

CudaGemms::~CudaGemms() {
  if (handle_ != nullptr) lt_->Destroy(handle_);
}

absl::Status CudaGemms::Begin() {
  if (handle_ != nullptr) return absl::OkStatus();
  MutexLock lock(&mutex_);
  if (handle_ != nullptr) return absl::OkStatus();
  cublasLtHandle_t handle = nullptr;
  const absl::Status status = lt_->Status(lt_->Create(&handle), "cublasLtCreate");
  if (status.ok()) handle_ = handle;
  return status;
}

absl::StatusOr<cublasLtMatmulAlgo_t> CudaGemms::Algorithm(const DenseGemm& p, int rows) {
  const uint32_t aligned[] = {Alignment(p.weight), Alignment(p.in), Alignment(p.out)};
  const Key key = {rows,         p.n,        p.k,        p.in_stride, p.out_stride, p.out_type,
                   p.accumulate, aligned[0], aligned[1], aligned[2],  p.algorithm};
  MutexLock lock(&mutex_);
  if (const auto it = algorithms_.find(key); it != algorithms_.end()) return it->second;
  Matmul matmul;
  RETURN_IF_ERROR(matmul.Init(*lt_, p, rows));
  cublasLtMatmulPreferenceOpaque_t preference;
  const size_t workspace = kWorkspaceBytes;
  // Makes cuBLASLt keep the partial sums of a split-k GEMM as floats in the workspace. Otherwise it
  // could store them in the type of `out`, or in `out` itself.
  const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return lt_->MatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  };
  for (const cublasStatus_t status :
       {lt_->MatmulPreferenceInit(&preference, sizeof(preference)),
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2])}) {
    if (status != CUBLAS_STATUS_SUCCESS) return lt_->Status(status, "cublasLt preference");
  }
  std::vector<cublasLtMatmulHeuristicResult_t> proposed(size_t{1} + p.algorithm);
  int found = 0;
  RETURN_IF_ERROR(lt_->Status(
      lt_->MatmulAlgoGetHeuristic(handle_, &matmul.operation, &matmul.weight, &matmul.in,
                                  &matmul.out, &matmul.out, &preference,
                                  static_cast<int>(proposed.size()), proposed.data(), &found),
      absl::StrCat("cublasLtMatmulAlgoGetHeuristic for [", rows, ", ", p.k, "] by [", p.n, ", ",
                   p.k, "]")));
  if (found <= p.algorithm && p.algorithm > 0) {
    return absl::NotFoundError(absl::StrCat("cuBLASLt proposes ", found, " algorithms for [", rows,
                                            ", ", p.k, "] by [", p.n, ", ", p.k, "]; number ",
                                            p.algorithm, " was asked for, counted from 0"));
  }
  if (found == 0) {
    return absl::InternalError(absl::StrCat("cuBLASLt has no algorithm to multiply [", rows, ", ",
                                            p.k, "] by [", p.n, ", ", p.k, "]"));
  }
  return algorithms_[key] = proposed[p.algorithm].algo;
}

absl::Status CudaGemms::Run(const DenseGemm& p, void* workspace, cudaStream_t stream) {
  RETURN_IF_ERROR(Begin());
  const int bucket = static_cast<int>(std::bit_ceil(static_cast<unsigned>(p.rows)));
  auto algorithm = Algorithm(p, bucket);
  RETURN_IF_ERROR(algorithm.status());
  Matmul matmul;
  RETURN_IF_ERROR(matmul.Init(*lt_, p, p.rows));
  if (p.rows != bucket) {
    cublasLtMatmulHeuristicResult_t result;
    const cublasStatus_t usable =
        lt_->MatmulAlgoCheck(handle_, &matmul.operation, &matmul.weight, &matmul.in, &matmul.out,
                             &matmul.out, &*algorithm, &result);
    if (usable != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) {
      algorithm = Algorithm(p, p.rows);
      RETURN_IF_ERROR(algorithm.status());
    }
  }
  const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
  return lt_->Status(
      lt_->Matmul(handle_, &matmul.operation, &alpha, p.weight, &matmul.weight, p.in, &matmul.in,
                  &beta, p.out, &matmul.out, p.out, &matmul.out, &*algorithm, workspace,
                  kWorkspaceBytes, stream),
      absl::StrCat("cublasLtMatmul of [", p.rows, ", ", p.k, "] by [", p.n, ", ", p.k, "]"));
}

}  // namespace baton
