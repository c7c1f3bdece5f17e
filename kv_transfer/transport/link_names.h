#pragma once

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"

namespace baton {

// The values that Transport::Link returns, for metrics with one counter per kind of link. The last
// name stands for any other value.
inline constexpr absl::string_view kLinkNames[] = {
    "inproc", "shm", "tcp", "rdma", "nvlink", "pcie", "cuda-ipc", "peer-device", "other"};

// Returns the index of `link` in kLinkNames.
inline size_t LinkIndex(absl::string_view link) {
  size_t index = 0;
  while (index + 1 < std::size(kLinkNames) && kLinkNames[index] != link) ++index;
  return index;
}

}  // namespace baton
