#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/results/record.h"

namespace baton {

// One latency target as written in the file: a time, or a multiple of the unloaded latency.
struct SloTarget {
  double value = 0;
  bool is_multiple = false;
};

// Targets of a task, as read from its file in slo/:
//   {"name": "chat", "about": "...", "sources": ["..."], "ttft": "250ms", "tpot": "100ms"}
// A file has at least one of the targets "ttft", "tpot" and "e2e". Each target is a time ("2s",
// "250ms", "1.5 s") or a multiple of the latency that the tool measures on an idle server ("10x").
struct SloFile {
  std::string name;
  std::string about;   // Description of the users for whom the targets are meant; may be empty.
  std::string source;  // All entries of "sources", joined.
  std::optional<SloTarget> ttft, tpot, e2e;

  bool IsRelative() const;
  // Returns absolute targets. `unloaded` is needed if IsRelative(). An end-to-end target of "10x"
  // is ten times the time of a whole answer on an idle server: the unloaded TTFT, plus the unloaded
  // TPOT for each later token of an answer of the workload's median length. Returns
  // FailedPrecondition if a target is a multiple of TPOT but no answer had a second token.
  absl::StatusOr<SloTargets> Resolve(const std::optional<UnloadedLatency>& unloaded) const;
};

// Parses a target such as "250ms", "2s" or "10x". The message of an InvalidArgument contains
// `text`.
absl::StatusOr<SloTarget> ParseSloTarget(absl::string_view text);
// Parses the text of an SLO file. Returns InvalidArgument for an unknown key, a wrong unit, or a
// time that is not above 0. Its message has `path`, the error, and the line if it is known.
absl::StatusOr<SloFile> ParseSlo(const std::string& path, const std::string& text);
absl::StatusOr<SloFile> ReadSloFile(const std::string& path);

}  // namespace baton
