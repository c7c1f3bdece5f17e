#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_graph.h"

namespace baton {

// A copy between any two places of an address space. As on a GPU, it depends on where its ends are
// whether the call that makes it returns before it has run.
class EmulatedCopy {
 public:
  // Runs of bytes, `pitch` apart; both at least one.
  struct Rows {
    size_t pitch, bytes, count;
    size_t extent() const { return (count - 1) * pitch + bytes; }
  };

  // InvalidArgument, which begins with `call`, when an end is not in one piece. `space` must
  // outlive the work.
  static absl::StatusOr<EmulatedCopy> Create(EmulatedAddressSpace* space, absl::string_view call,
                                             void* to, size_t to_pitch, const void* from,
                                             const Rows& rows);

  // An end is in plain host memory, which no graph may hold.
  bool touches_plain() const { return to_place_ == Place::kPlain || from_place_ == Place::kPlain; }
  // Outside of a capture, the call returns when the copy has run.
  bool waits() const {
    return to_place_ == Place::kPlain ||
           (to_place_ == Place::kPinned && from_place_ != Place::kDevice);
  }
  // From plain memory to the device: of the bytes as they are now.
  EmulatedWork Work() const;

 private:
  using Place = EmulatedAddressSpace::Place;

  EmulatedCopy() = default;

  EmulatedAddressSpace* space_ = nullptr;
  void* to_ = nullptr;
  size_t to_pitch_ = 0;
  const void* from_ = nullptr;
  Rows rows_{};
  Place to_place_ = Place::kPlain, from_place_ = Place::kPlain;
};

}  // namespace baton
