#include "kernels/device/runtime/device_capture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

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

void OpenCaptures::Remove(const DeviceCapture& capture) {
  const auto it = std::find_if(captures_.begin(), captures_.end(),
                               [&](const auto& other) { return other.get() == &capture; });
  BATON_CHECK(it != captures_.end());
  captures_.erase(it);
}

DeviceCapture* OpenCaptures::OfThisThread() const {
  for (const auto& capture : captures_) {
    if (capture->IsOwn()) return capture.get();
  }
  return nullptr;
}

absl::Status OpenCaptures::Refuse(absl::string_view call) const {
  DeviceCapture* const own = OfThisThread();
  if (own == nullptr) return absl::OkStatus();
  return own->Spoil(absl::StrCat(call, ": the thread is capturing a stream"));
}

}  // namespace baton
