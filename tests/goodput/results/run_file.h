#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Version of the JSON format of run files, which tests/goodput/README.md describes. Files of other
// versions can't be read.
inline constexpr int kRunFileVersion = 1;

// Returns completed, wrong_length, rejected, timed_out, failed, stopped or not_sent.
const char* OutcomeName(Outcome outcome);

// Converts a run to JSON. Besides the records, the JSON contains the verdict for people and
// scripts, which RunFromJson ignores.
nlohmann::ordered_json RunToJson(const RunResult& run);
// Reads a run from JSON. An InvalidArgument names the key and its error.
absl::StatusOr<RunResult> RunFromJson(const nlohmann::ordered_json& json);

// Writes the run completely or not at all: first to a file beside `path`, which is then renamed.
// Returns Unavailable or PermissionDenied, with the path and the reason.
absl::Status WriteRunFile(const std::string& path, const RunResult& run);
// Reads a run file. Returns NotFound or InvalidArgument, with the path.
absl::StatusOr<RunResult> ReadRunFile(const std::string& path);

// Checks that the file `path` can be written, without changing it. So a long run does not fail at
// its end because a folder is missing.
absl::Status CheckWritable(const std::string& path);
// Returns InvalidArgument, naming `path`, if WriteWhole(path) would overwrite one of the `inputs`
// under any name (links included). Measurements that took hours must not be lost by mistake.
absl::Status CheckIsNoInput(const std::string& path, const std::vector<std::string>& inputs);
// Writes `text` to the file `path` completely or not at all.
absl::Status WriteWhole(const std::string& path, absl::string_view text);

}  // namespace baton
