#pragma once

#include <memory>

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// cuBLASLt's functions, found when they are needed: a program that is linked against the library
// itself would not even start where it is missing.
class CublasLt {
 public:
  // FailedPrecondition, with the loader's words, when there is no cuBLASLt of our major version.
  // Read from disk by a process's first call; it stays until the process ends.
  static absl::StatusOr<std::shared_ptr<const CublasLt>> Load();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Internal for everything but success.
  absl::Status Status(cublasStatus_t status, absl::string_view call) const;

  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtGetStatusString) GetStatusString = nullptr;
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) MatmulDescInit = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) MatmulPreferenceInit = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) MatrixLayoutInit = nullptr;

 private:
  CublasLt() = default;
};

}  // namespace baton
