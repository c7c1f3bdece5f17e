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
// Targets are "ttft", "tpot" and "e2e", at least one of them. Each is a time ("2s", "250ms", "1.5
// s") or a multiple of the latency that the tool measures on an idle server ("10x").
struct SloFile {
  std::string name;
  std::string about;   // Users for whom these targets are meant; may be empty.
  std::string source;  // All sources, joined.
  std::optional<SloTarget> ttft, tpot, e2e;

  bool IsRelative() const;
  // Returns absolute targets. `unloaded` is needed if IsRelative(). A multiple of e2e multiplies
  // the unloaded TTFT plus the unloaded TPOT for each later token of an answer of the workload's
  // median length. Returns FailedPrecondition for a multiple of an unknown TPOT (no answer had a
  // second token).
  absl::StatusOr<SloTargets> Resolve(const std::optional<UnloadedLatency>& unloaded) const;
};

// Parses "250ms", "2s" or "10x". InvalidArgument contains the text that was found.
absl::StatusOr<SloTarget> ParseSloTarget(absl::string_view text);
// Returns InvalidArgument with `path`, the line where it is known, and the error: an unknown key, a
// wrong unit, or a time that is not above 0.
absl::StatusOr<SloFile> ParseSlo(const std::string& path, const std::string& text);
absl::StatusOr<SloFile> ReadSloFile(const std::string& path);

}  // namespace baton
