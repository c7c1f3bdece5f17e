#pragma once

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"

namespace baton {

// What Transport::Link answers, for places that count by it; the last one stands for anything else.
inline constexpr absl::string_view kLinkNames[] = {
    "inproc", "shm", "tcp", "rdma", "nvlink", "pcie", "cuda-ipc", "peer-device", "other"};

// The place of `link` among them.
inline size_t LinkIndex(absl::string_view link) {
  size_t index = 0;
  while (index + 1 < std::size(kLinkNames) && kLinkNames[index] != link) ++index;
  return index;
}

}  // namespace baton
