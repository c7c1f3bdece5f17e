// Prints the driver, the libraries and the device that this machine has for Baton, one per line. If
// there is no device, prints one line and exits with 77. If there is a device but Baton can't use
// it, exits with 1. Links no kernels, so that the GPU bundle stays small.

#include <cstdio>
#include <fstream>
#include <string>

#include <ucp/api/ucp.h>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "kernels/device/cuda/cuda_runtime.h"
#include "kernels/device/emulated/emulated_runtime.h"

#ifdef BATON_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/device/cuda/cublas_lt.h"
#endif

ABSL_FLAG(std::string, device, "cuda", "device to describe: cuda or emulated");
ABSL_FLAG(bool, gemms, false,
          "checks only if the device computes dense GEMMs; if it does not, says in one line what "
          "is missing, and exits with 77");

namespace baton {
namespace {

void Say(absl::string_view what, const std::string& value) {
  std::printf("%-12s %s\n", absl::StrCat(what).c_str(), value.c_str());
}

#ifdef BATON_HAVE_CUDA
// Converts CUDA's version numbers to text: 13000 is 13.0.
std::string CudaVersion(int number) {
  return number == 0 ? "none" : absl::StrCat(number / 1000, ".", number % 1000 / 10);
}
#endif

void SayLibraries() {
  std::ifstream driver("/proc/driver/nvidia/version");
  if (std::string line; std::getline(driver, line)) Say("driver", line);
#ifdef BATON_HAVE_CUDA
  int number = 0;
  if (cudaDriverGetVersion(&number) == cudaSuccess) Say("driver CUDA", CudaVersion(number));
  if (cudaRuntimeGetVersion(&number) == cudaSuccess) Say("runtime", CudaVersion(number));
  const auto lt = CublasLt::Load();
  if (lt.ok()) {
    const size_t version = (*lt)->GetVersion();
    Say("cuBLASLt", absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100));
  } else {
    Say("cuBLASLt", std::string(lt.status().message()));
  }
#else
  Say("runtime", "none: built without CUDA");
#endif
  Say("UCX", ucp_get_version_string());
}

int Main() {
  const std::string kind = absl::GetFlag(FLAGS_device);
  if (kind != "cuda" && kind != "emulated") {
    RefuseToStart(absl::StrCat("--device is '", kind, "'; it takes cuda or emulated"));
  }
  const auto runtime = kind == "cuda" ? CreateCudaRuntime(0)
                                      : CreateEmulatedRuntime({.memory_bytes = size_t{1} << 20});
  if (!runtime.ok()) {
    const bool missing = absl::IsFailedPrecondition(runtime.status());
    std::printf("%s: %s\n", missing ? "no GPU to run on" : "the GPU can't be used",
                std::string(runtime.status().message()).c_str());
    return missing ? 77 : 1;
  }
  if (absl::GetFlag(FLAGS_gemms)) {
    const absl::Status gemms = (*runtime)->GemmStatus();
    if (!gemms.ok()) std::printf("%s\n", std::string(gemms.message()).c_str());
    return gemms.ok() ? 0 : 77;
  }
  SayLibraries();
  const DeviceInfo& info = (*runtime)->info();
  const auto free = (*runtime)->FreeBytes();
  Say("device",
      absl::StrCat(info.name, ", sm_", info.major, info.minor, ", ", info.multiprocessors,
                   " multiprocessors, ", info.shared_bytes >> 10, " KiB of shared memory a block"));
  Say("memory", absl::StrCat(free.value_or(0) >> 20, " of ", info.total_bytes >> 20, " MiB free"));
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto extra = baton::StartProgram(
      argc, argv,
      "device_versions: prints the driver, the libraries and the device of this machine");
  if (!extra.empty()) baton::RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected"));
  return baton::Main();
}
