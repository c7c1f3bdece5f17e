#include "kernels/device/emulated/emulated_copy.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

void CopyBytes(void* to, size_t to_pitch, const void* from, const EmulatedCopy::Rows& rows) {
  for (size_t i = 0; i < rows.count; ++i) {
    memmove(static_cast<std::byte*>(to) + i * to_pitch,
            static_cast<const std::byte*>(from) + i * rows.pitch, rows.bytes);
  }
}

}  // namespace

absl::StatusOr<EmulatedCopy> EmulatedCopy::Create(EmulatedAddressSpace* space,
                                                  absl::string_view call, void* to, size_t to_pitch,
                                                  const void* from, const Rows& rows) {
  const auto to_place = space->Find(to, (rows.count - 1) * to_pitch + rows.bytes);
  const auto from_place = space->Find(from, rows.extent());
  for (const auto& [place, word] : {std::pair(&to_place, "to"), {&from_place, "from"}}) {
    if (place->ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(call, " ", word, ": ", place->status().message()));
  }
  EmulatedCopy copy;
  copy.space_ = space;
  copy.to_ = to;
  copy.to_pitch_ = to_pitch;
  copy.from_ = from;
  copy.rows_ = rows;
  copy.to_place_ = *to_place;
  copy.from_place_ = *from_place;
  return copy;
}

EmulatedWork EmulatedCopy::Work() const {
  std::shared_ptr<std::vector<std::byte>> staged;
  const void* from = from_;
  Rows rows = rows_;
  if (from_place_ == Place::kPlain && to_place_ == Place::kDevice) {
    staged = std::make_shared<std::vector<std::byte>>(rows.bytes * rows.count);
    CopyBytes(staged->data(), rows.bytes, from, rows);
    from = staged->data();
    rows.pitch = rows.bytes;
  }
  return [space = space_, to = to_, to_pitch = to_pitch_, from, rows, staged,
          to_device = to_place_ == Place::kDevice, from_device = from_place_ == Place::kDevice] {
    absl::Status status;  // checked again: memory may be freed before a graph is replayed
    const size_t to_extent = (rows.count - 1) * to_pitch + rows.bytes;
    if (to_device) status = space->CheckDevice("Copy: to: ", to, to_extent);
    if (status.ok() && from_device) {
      status = space->CheckDevice("Copy: from: ", from, rows.extent());
    }
    RETURN_IF_ERROR(status);
    CopyBytes(to, to_pitch, from, rows);
    for (size_t i = 0; space->check() && i < rows.count; ++i) {
      space->CopyWritten(static_cast<std::byte*>(to) + i * to_pitch,
                         static_cast<const std::byte*>(from) + i * rows.pitch, rows.bytes);
    }
    return absl::OkStatus();
  };
}

}  // namespace baton
