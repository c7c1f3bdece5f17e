#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace baton {

// Parses JSON. An InvalidArgument contains the line and column of the first error, and what the
// parser expected at this position.
absl::StatusOr<nlohmann::ordered_json> ParseJson(absl::string_view text);

// Returns the line, counted from 1, of the first error in `text`, which must not be valid JSON.
int LineOfJsonError(absl::string_view text);

// Reads a JSON file. Returns NotFound or PermissionDenied with the path, InvalidArgument with the
// path and the position in the file, or ResourceExhausted for a file of more than 1 GiB.
absl::StatusOr<nlohmann::ordered_json> ReadJsonFile(const std::string& path);

}  // namespace baton
