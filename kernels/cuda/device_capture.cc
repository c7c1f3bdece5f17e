#include "kernels/cuda/device_capture.h"

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status DeviceCapture::Spoil(absl::string_view why) {
  absl::Status status = absl::FailedPreconditionError(why);
  if (spoilt_.ok()) spoilt_ = status;
  return status;
}

absl::Status DeviceCapture::End() {
  ended_ = true;
  if (spoilt_.ok()) return spoilt_;
  return absl::FailedPreconditionError(
      absl::StrCat("EndCapture: the capture was spoilt: ", spoilt_.message()));
}

}  // namespace baton
