#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

// Returns InvalidArgument with the line and column of the first error, and with what was expected
// there.
absl::StatusOr<nlohmann::ordered_json> ParseJson(absl::string_view text);

// Returns the line, counted from 1, at which text that is not JSON has its first error.
int LineOfJsonError(absl::string_view text);

// Returns NotFound or PermissionDenied with the path, InvalidArgument with the path and the place
// in the file, and ResourceExhausted for a file of more than 1 GiB.
absl::StatusOr<nlohmann::ordered_json> ReadJsonFile(const std::string& path);

}  // namespace baton
