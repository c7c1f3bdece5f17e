#include "kernels/device/cuda/cuda_device.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/cuda/cuda_gemms.h"
#include "kernels/device/cuda/cuda_status.h"

namespace baton {
namespace {

// Device memory to leave free for the driver. This is a generous guess: enough for
// StepGraphs::kMaxGraphs graphs of 400 nodes each, and for all kernels.
constexpr size_t kDriverBytes = size_t{256} << 20;
// Device memory that a CUDA context takes. This is a guess, because no CUDA call returns the size.
constexpr size_t kContextBytes = size_t{512} << 20;

// Returns the device's DeviceInfo::id.
std::string IdOf(const cudaDeviceProp& properties) {
  return absl::StrCat("GPU-", absl::BytesToHexString(absl::string_view(
                                  properties.uuid.bytes, sizeof(properties.uuid.bytes))));
}

// Formats CUDA's version numbers: 13000 is 13.0.
std::string CudaVersion(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

}  // namespace

absl::Status CudaDeviceCountStatus(cudaError_t error, int driver) {
  const absl::Status status = CudaStatus(error, "cudaGetDeviceCount");
  if (status.ok()) return status;
  const std::string words = absl::StrCat("CUDA: ", status.message());
  // If there is no driver, the runtime returns the same error as for a driver that is too old.
  if (error == cudaErrorInsufficientDriver && driver == 0) {
    return absl::FailedPreconditionError(
        "CUDA: no NVIDIA driver is on this machine (libcuda.so.1 is missing); install one, in a "
        "container use NVIDIA's container runtime, or take --backend=cpu");
  }
  if (error == cudaErrorNoDevice) {
    return absl::FailedPreconditionError(absl::StrCat(
        words, "; `nvidia-smi` and $CUDA_VISIBLE_DEVICES show which GPUs this process may see"));
  }
  if (error != cudaErrorInsufficientDriver) return absl::InternalError(words);
  return absl::InternalError(absl::StrCat(words, ": the driver is made for CUDA ",
                                          CudaVersion(driver), ", this program for ",
                                          CudaVersion(CUDART_VERSION), "; install a newer driver"));
}

absl::StatusOr<cudaDeviceProp> FindCudaDevice(int device) {
  auto refuse = [](const auto&... parts) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA: ", parts...));
  };
  int devices = 0, driver = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  absl::Status status = CudaDeviceCountStatus(counted, driver);
  RETURN_IF_ERROR(status);
  if (device < 0 || device >= devices) {
    return refuse("device ", device, " of ", devices, " (numbered from 0) was asked for");
  }
  status = CudaStatus(cudaSetDevice(device), "CUDA: cudaSetDevice");
  RETURN_IF_ERROR(status);
  cudaDeviceProp properties;
  status =
      CudaStatus(cudaGetDeviceProperties(&properties, device), "CUDA: cudaGetDeviceProperties");
  RETURN_IF_ERROR(status);
  if (properties.major < 8) {
    return refuse(properties.name, " has compute capability ", properties.major, ".",
                  properties.minor, "; the kernels need 8.0");
  }
  return properties;
}

DeviceInfo CudaDeviceInfo(const cudaDeviceProp& properties) {
  DeviceInfo info;
  info.name = properties.name;
  info.id = IdOf(properties);
  info.multiprocessors = properties.multiProcessorCount;
  info.major = properties.major;
  info.minor = properties.minor;
  info.total_bytes = properties.totalGlobalMem;
  info.shared_bytes = properties.sharedMemPerBlockOptin;
  info.workspace_bytes = CudaGemms::kWorkspaceBytes;
  info.driver_bytes = kDriverBytes;
  info.context_bytes = kContextBytes;
  return info;
}

std::string CudaLink(int device, absl::string_view other_id) {
  int devices = 0;
  if (!CudaStatus(cudaGetDeviceCount(&devices), "cudaGetDeviceCount").ok()) return "";
  for (int other = 0; other < devices; ++other) {
    cudaDeviceProp properties;
    if (!CudaStatus(cudaGetDeviceProperties(&properties, other), "cudaGetDeviceProperties").ok() ||
        IdOf(properties) != other_id) {
      continue;
    }
    // Among the links between GPUs, only NVLink supports atomics.
    int atomics = 0;
    if (!CudaStatus(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device,
                                              other),
                    "cudaDeviceGetP2PAttribute")
             .ok()) {
      return "";
    }
    return atomics != 0 ? "nvlink" : "pcie";
  }
  return "";
}

}  // namespace baton
