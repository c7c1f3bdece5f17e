#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// Returns "disaggregated", "colocated" or "auto", and "unspecified" for any other value.
absl::string_view ServingModeName(v1::ServingMode mode);

// Returns the mode with this name, for flags. Returns InvalidArgument, with the known names, for an
// unknown name.
absl::StatusOr<v1::ServingMode> ServingModeFromName(absl::string_view name);

}  // namespace baton
