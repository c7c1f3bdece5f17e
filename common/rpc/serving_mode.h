#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// "disaggregated", "colocated" or "auto"; "unspecified" for everything else.
absl::string_view ServingModeName(v1::ServingMode mode);

// The other way round, for flags. InvalidArgument says which names there are.
absl::StatusOr<v1::ServingMode> ServingModeFromName(absl::string_view name);

}  // namespace baton
