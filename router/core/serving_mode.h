#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace baton {

// Decides which worker computes the prompt of a request. The values are those of v1::ServingMode.
enum class ServingMode {
  kUnspecified = 0,    // The router's own mode.
  kDisaggregated = 1,  // A prefill worker, which hands its KV to a decode worker.
  kColocated = 2,      // The decode worker itself, in chunks beside the answers it writes.
  kAuto = 3,           // The mode that the router expects to be better for this request now.
};
inline constexpr size_t kServingModes = 4;

constexpr absl::string_view ServingModeName(ServingMode mode) {
  constexpr absl::string_view kNames[kServingModes] = {"unspecified", "disaggregated", "colocated",
                                                       "auto"};
  return kNames[static_cast<size_t>(mode)];
}

}  // namespace baton
