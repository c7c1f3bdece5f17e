#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// disaggregated, colocated or auto, as flags and files say; empty is unspecified. InvalidArgument
// names what was given.
absl::StatusOr<v1::ServingMode> ServingModeOf(absl::string_view name);
std::string NameOf(v1::ServingMode mode);

}  // namespace baton
