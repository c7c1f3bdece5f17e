#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/results/record.h"

namespace baton {

// One latency target as it is written: a time, or a multiple of the unloaded latency.
struct SloTarget {
  double value = 0;
  bool is_multiple = false;
};

// A task's targets as its file in slo/ tells them:
//   {"name": "chat", "about": "...", "sources": ["..."], "ttft": "250ms", "tpot": "100ms"}
// Targets are "ttft", "tpot" and "e2e", at least one of them, each a time ("2s", "250ms", "1.5 s")
// or a multiple of what the tool measures on an idle server ("10x").
struct SloFile {
  std::string name;
  std::string about;   // whom these targets are for; may be empty
  std::string source;  // all of them
  std::optional<SloTarget> ttft, tpot, e2e;

  bool IsRelative() const;
  // `unloaded` is needed when IsRelative(); a multiple of e2e counts from its TTFT, and its TPOT
  // for each later token of an answer of the workload's median length. FailedPrecondition for a
  // multiple of nothing: no answer had a second token.
  absl::StatusOr<SloTargets> Resolve(const std::optional<UnloadedLatency>& unloaded) const;
};

// "250ms", "2s" or "10x". InvalidArgument says what was found.
absl::StatusOr<SloTarget> ParseSloTarget(absl::string_view text);
// InvalidArgument with `path`, the line where it is known, and what: a key that is not there, a
// wrong unit, a time that is not above 0.
absl::StatusOr<SloFile> ParseSlo(const std::string& path, const std::string& text);
absl::StatusOr<SloFile> ReadSloFile(const std::string& path);

}  // namespace baton
