#include "kernels/cuda/weight_upload.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/formats/element.h"

namespace baton {

WeightUpload::~WeightUpload() {
  for (std::byte* buffer : pinned_) runtime_->FreePinned(buffer);
}

absl::Status WeightUpload::Prepare() {
  for (int i = 0; i < kBuffers; ++i) {
    if (copied_[i] != nullptr) continue;
    if (pinned_[i] == nullptr) {
      ASSIGN_OR_RETURN(auto pinned, runtime_->AllocatePinned(kBufferBytes));
      pinned_[i] = pinned;
    }
    ASSIGN_OR_RETURN(auto event, runtime_->CreateEvent());
    copied_[i] = std::move(event);
  }
  return absl::OkStatus();
}

absl::Status WeightUpload::Upload(const Matrix& host, std::byte* device) {
  RETURN_IF_ERROR(Prepare());
  const size_t elements = size_t{1} * host.rows * host.cols;
  const size_t max = kBufferBytes / DTypeBytes(DType::kBF16);
  for (size_t begin = 0; begin < elements; begin += max) {
    const size_t count = std::min(max, elements - begin);
    const int buffer = std::exchange(next_, (next_ + 1) % kBuffers);
    RETURN_IF_ERROR(runtime_->Synchronize(*copied_[buffer]));
    const auto* from = static_cast<const std::byte*>(host.data) + RowBytes(host.format, begin);
    if (const auto type = ElementTypeOf(host.format)) {
      ConvertElements(*type, from, DType::kBF16, pinned_[buffer], count);
    } else {
      wide_.resize(count);
      Dequantise(host.format, from, absl::MakeSpan(wide_));
      ConvertElements(DType::kF32, wide_.data(), DType::kBF16, pinned_[buffer], count);
    }
    RETURN_IF_ERROR(runtime_->Copy(device + begin * DTypeBytes(DType::kBF16), pinned_[buffer],
                                   count * DTypeBytes(DType::kBF16), *stream_));
    RETURN_IF_ERROR(runtime_->Record(*copied_[buffer], *stream_));
  }
  return absl::OkStatus();
}

}  // namespace baton
