#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// Converts "disaggregated", "colocated" or "auto", as written in flags and files. An empty name
// gives SERVING_MODE_UNSPECIFIED. For any other name, returns InvalidArgument with that name.
absl::StatusOr<v1::ServingMode> ServingModeOf(absl::string_view name);
std::string NameOf(v1::ServingMode mode);

}  // namespace baton
