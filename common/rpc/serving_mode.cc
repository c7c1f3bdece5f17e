#include "common/rpc/serving_mode.h"

namespace baton {

absl::string_view ServingModeName(v1::ServingMode mode) {
  switch (mode) {
    case v1::SERVING_MODE_DISAGGREGATED:
      return "disaggregated";
    case v1::SERVING_MODE_COLOCATED:
      return "colocated";
    case v1::SERVING_MODE_AUTO:
      return "auto";
    default:
      return "unspecified";
  }
}

absl::StatusOr<v1::ServingMode> ServingModeFromName(absl::string_view name) {
  for (const v1::ServingMode mode :
       {v1::SERVING_MODE_DISAGGREGATED, v1::SERVING_MODE_COLOCATED, v1::SERVING_MODE_AUTO}) {
    if (name == ServingModeName(mode)) return mode;
  }
  return absl::InvalidArgumentError("it takes disaggregated, colocated or auto");
}

}  // namespace baton
