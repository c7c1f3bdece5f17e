#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tests/goodput/results/record.h"

namespace baton {

// Version of a run's JSON format, which tests/goodput/README.md describes. Readers refuse other
// versions.
inline constexpr int kRunFileVersion = 1;

// Returns completed, wrong_length, rejected, timed_out, failed, stopped or not_sent.
const char* OutcomeName(Outcome outcome);

// Converts a run to JSON. Includes the verdict beside the records, for people and scripts.
// RunFromJson does not read the verdict.
nlohmann::ordered_json RunToJson(const RunResult& run);
// Reads a run from JSON. InvalidArgument names the key and its error.
absl::StatusOr<RunResult> RunFromJson(const nlohmann::ordered_json& json);

// Writes the file completely or not at all: first beside it, then renamed. Returns Unavailable or
// PermissionDenied, with the path and the reason.
absl::Status WriteRunFile(const std::string& path, const RunResult& run);
// Returns NotFound or InvalidArgument, with the path.
absl::StatusOr<RunResult> ReadRunFile(const std::string& path);

// Checks that `path` can be written, and does not change it. A run of an hour must not fail at its
// end because a folder is missing.
absl::Status CheckWritable(const std::string& path);
// Returns InvalidArgument, naming `path`, if WriteWhole(path) would overwrite one of the `inputs`
// under any name (links included). So a page can't replace what took hours to measure.
absl::Status CheckIsNoInput(const std::string& path, const std::vector<std::string>& inputs);
// Writes `text` completely or not at all.
absl::Status WriteWhole(const std::string& path, absl::string_view text);

}  // namespace baton
