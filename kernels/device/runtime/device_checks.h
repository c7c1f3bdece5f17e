#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Checks of arguments that both runtimes make before they put anything on a stream. They return
// InvalidArgument with the values. The message does not depend on the runtime.
absl::Status CheckLaunch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                         const DeviceInfo& device);
absl::Status CheckGemm(const DenseGemm& gemm);
absl::Status CheckCopy(const void* to, const void* from, size_t bytes);
absl::Status CheckCopyRows(const void* to, size_t to_pitch, const void* from, size_t from_pitch,
                           size_t row_bytes, size_t rows);
absl::Status CheckFill(const void* to, size_t bytes);
absl::Status CheckAllocation(size_t bytes);
absl::Status CheckPin(const void* memory, size_t bytes);

}  // namespace baton
