#include "kernels/cuda/open_emulated_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

constexpr int kEmulatedDevices = 8;

}  // namespace

absl::StatusOr<OpenedDevice> OpenEmulatedDevice(size_t memory_bytes, int index,
                                                int64_t fails_after_kernels) {
  if (index < 0 || index >= kEmulatedDevices) {
    return absl::FailedPreconditionError(absl::StrCat("device ", index, " of ", kEmulatedDevices,
                                                      " (numbered from 0) was asked for"));
  }
  ASSIGN_OR_RETURN(auto runtime,
                   CreateEmulatedRuntime({.memory_bytes = memory_bytes,
                                          .device = index,
                                          .fails_after_kernels = fails_after_kernels}));
  return OpenedDevice{"cuda-emulated", std::move(runtime), EmulatedKernels()};
}

}  // namespace baton
