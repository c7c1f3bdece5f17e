#include "kernels/device/cuda/cublas_lt.h"

#include <string>

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::shared_ptr<const CublasLt>> CublasLt::Load() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  std::shared_ptr<CublasLt> lt(new CublasLt);
  // Tries the loader's search path first. Then tries CUDA's default folder, which is not always in
  // that path.
  std::string words;
  // The library is never closed: it is half a gigabyte, and every runtime opens it.
  void* library = nullptr;
  for (const std::string& path : {name, absl::StrCat("/usr/local/cuda/lib64/", name)}) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) break;
    absl::StrAppend(&words, words.empty() ? "" : "; ", dlerror());
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("dense GEMMs on the device need cuBLASLt ", CUBLAS_VER_MAJOR, ": ", words));
  }
  std::string missing;
  auto find = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, symbol));
    if (*function == nullptr) absl::StrAppend(&missing, " ", symbol);
  };
  find("cublasLtGetVersion", &lt->GetVersion);
  find("cublasLtGetStatusString", &lt->GetStatusString);
  find("cublasLtCreate", &lt->Create);
  find("cublasLtDestroy", &lt->Destroy);
  find("cublasLtMatmul", &lt->Matmul);
  find("cublasLtMatmulAlgoCheck", &lt->MatmulAlgoCheck);
  find("cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic);
  find("cublasLtMatmulDescInit_internal", &lt->MatmulDescInit);
  find("cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute);
  find("cublasLtMatmulPreferenceInit_internal", &lt->MatmulPreferenceInit);
  find("cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute);
  find("cublasLtMatrixLayoutInit_internal", &lt->MatrixLayoutInit);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has no", missing));
  }
  return lt;
}

absl::Status CublasLt::Status(cublasStatus_t status, absl::string_view call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", GetStatusString(status)));
}

}  // namespace baton
