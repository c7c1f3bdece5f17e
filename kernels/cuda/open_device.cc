#include "kernels/cuda/open_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/emulated_runtime.h"
#ifdef BATON_HAVE_CUDA
#include "kernels/cuda/cuda_runtime.h"
#endif

namespace baton {
namespace {

constexpr int kEmulatedDevices = 8;

}  // namespace

absl::StatusOr<OpenedDevice> OpenCudaDevice([[maybe_unused]] int index) {
#ifdef BATON_HAVE_CUDA
  auto runtime = CreateCudaRuntime(index);
  if (!runtime.ok()) return runtime.status();
  return OpenedDevice{"cuda", *std::move(runtime), CudaKernels()};
#else
  return absl::FailedPreconditionError(
      "this program was built without CUDA: configure it where nvcc is found (BATON_CUDA)");
#endif
}

absl::StatusOr<OpenedDevice> OpenEmulatedDevice(size_t memory_bytes, int index,
                                                int64_t fails_after_kernels) {
  if (index < 0 || index >= kEmulatedDevices) {
    return absl::FailedPreconditionError(absl::StrCat("device ", index, " of ", kEmulatedDevices,
                                                      " (numbered from 0) was asked for"));
  }
  auto runtime = CreateEmulatedRuntime(
      {.memory_bytes = memory_bytes, .device = index, .fails_after_kernels = fails_after_kernels});
  if (!runtime.ok()) return runtime.status();
  return OpenedDevice{"cuda-emulated", *std::move(runtime), EmulatedKernels()};
}

}  // namespace baton
