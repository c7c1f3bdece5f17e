#include "kernels/cuda/weight_upload.h"

#include <algorithm>
#include <utility>

#include "kernels/element.h"

namespace baton {

WeightUpload::~WeightUpload() {
  for (std::byte* buffer : pinned_) runtime_->FreePinned(buffer);
}

absl::Status WeightUpload::Prepare() {
  for (int i = 0; i < kBuffers; ++i) {
    if (copied_[i] != nullptr) continue;
    if (pinned_[i] == nullptr) {
      auto pinned = runtime_->AllocatePinned(kBufferBytes);
      if (!pinned.ok()) return pinned.status();
      pinned_[i] = *pinned;
    }
    auto event = runtime_->CreateEvent();
    if (!event.ok()) return event.status();
    copied_[i] = *std::move(event);
  }
  return absl::OkStatus();
}

absl::Status WeightUpload::Upload(const Matrix& host, std::byte* device) {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  const size_t elements = size_t{1} * host.rows * host.cols;
  const size_t most = kBufferBytes / DTypeBytes(DType::kBF16);
  for (size_t begin = 0; begin < elements; begin += most) {
    const size_t count = std::min(most, elements - begin);
    const int buffer = std::exchange(next_, (next_ + 1) % kBuffers);
    if (absl::Status status = runtime_->Synchronize(*copied_[buffer]); !status.ok()) return status;
    ConvertElements(host.type,
                    static_cast<const std::byte*>(host.data) + begin * DTypeBytes(host.type),
                    DType::kBF16, pinned_[buffer], count);
    if (absl::Status status =
            runtime_->Copy(device + begin * DTypeBytes(DType::kBF16), pinned_[buffer],
                           count * DTypeBytes(DType::kBF16), *stream_);
        !status.ok()) {
      return status;
    }
    if (absl::Status status = runtime_->Record(*copied_[buffer], *stream_); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
