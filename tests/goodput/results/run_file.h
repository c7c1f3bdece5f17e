#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tests/goodput/results/record.h"

namespace baton {

// A run as JSON. The form is told in README.md; readers refuse another version.
inline constexpr int kRunFileVersion = 1;

// completed, wrong_length, rejected, timed_out, failed, stopped, not_sent.
const char* OutcomeName(Outcome outcome);

// With the verdict beside the records, for people and scripts; RunFromJson leaves it unread.
nlohmann::ordered_json RunToJson(const RunResult& run);
// InvalidArgument names the key and what is wrong with it.
absl::StatusOr<RunResult> RunFromJson(const nlohmann::ordered_json& json);

// Writes the file whole or not at all (beside it first, then renamed). Unavailable or
// PermissionDenied names the path and why.
absl::Status WriteRunFile(const std::string& path, const RunResult& run);
// NotFound, or InvalidArgument, naming the path.
absl::StatusOr<RunResult> ReadRunFile(const std::string& path);

// Opens `path` for writing and leaves it as it was: a run of an hour should not end in a folder
// that is not there.
absl::Status CheckWritable(const std::string& path);
// InvalidArgument names `path` when writing it whole would touch one of the files `inputs`, by
// whatever name (links included): what took hours to measure is not replaced by a page about it.
absl::Status CheckIsNoInput(const std::string& path, const std::vector<std::string>& inputs);
// Writes `text` whole or not at all.
absl::Status WriteWhole(const std::string& path, absl::string_view text);

}  // namespace baton
