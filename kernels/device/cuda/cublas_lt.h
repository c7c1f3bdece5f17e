#pragma once

#include <memory>

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// The functions of cuBLASLt, loaded at run time. A program linked against the library would not
// even start on a machine without it.
class CublasLt {
 public:
  // Loads cuBLASLt. Returns FailedPrecondition, with the loader's message, if there is no cuBLASLt
  // of the major version of this build. The first call in a process reads the library from disk;
  // the library stays loaded until the process ends.
  static absl::StatusOr<std::shared_ptr<const CublasLt>> Load();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Returns OK for success and Internal for everything else.
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
