#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

// InvalidArgument says at which line and column the text stops being JSON, and what was expected.
absl::StatusOr<nlohmann::ordered_json> ParseJson(absl::string_view text);

// Returns the line, counted from 1, at which text that is not JSON has its first error.
int LineOfJsonError(absl::string_view text);

// NotFound or PermissionDenied names the path; InvalidArgument the path and the place; a file of
// more than a GiB is refused (ResourceExhausted).
absl::StatusOr<nlohmann::ordered_json> ReadJsonFile(const std::string& path);

}  // namespace baton
