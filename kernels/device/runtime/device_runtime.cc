#include "kernels/device/runtime/device_runtime.h"

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status DeviceRuntime::WrongParams(const Kernel& kernel, size_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      kernel.name, ": parameters of ", bytes, " bytes were given; it takes ", kernel.params_bytes));
}

}  // namespace baton
