#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_graph.h"

namespace baton {

// A copy between any two places of an address space. As on a GPU, the kinds of memory at both ends
// decide whether the call returns before the copy has run.
class EmulatedCopy {
 public:
  // `count` ranges of `bytes` bytes each. The starts of two neighbouring ranges are `pitch` bytes
  // apart. `bytes` and `count` must be at least one.
  struct Rows {
    size_t pitch, bytes, count;
    size_t extent() const { return (count - 1) * pitch + bytes; }
  };

  // Returns InvalidArgument, with a message that begins with `call`, if the source or the
  // destination is not inside one allocation. `space` must outlive the work.
  static absl::StatusOr<EmulatedCopy> Create(EmulatedAddressSpace* space, absl::string_view call,
                                             void* to, size_t to_pitch, const void* from,
                                             const Rows& rows);

  // Returns true if the source or the destination is in plain host memory. A graph may not contain
  // such a copy.
  bool touches_plain() const { return to_place_ == Place::kPlain || from_place_ == Place::kPlain; }
  // Returns true if, outside a capture, the call must return only after the copy has run.
  bool waits() const {
    return to_place_ == Place::kPlain ||
           (to_place_ == Place::kPinned && from_place_ != Place::kDevice);
  }
  // Returns the copy as an item of work that can run later. A copy from plain host memory to the
  // device reads its source now, not when the work runs.
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
