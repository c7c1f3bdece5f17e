#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Reads what a process of ours writes into its log, while it writes. One thread.
class ProcessLog {
 public:
  explicit ProcessLog(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The process starts (again): what stands in the log by now is of an earlier run.
  void BeginRun();
  // Reads what is new. Cheap when nothing is.
  void ReadNew();
  // The address at which this run listens, once it has said so in either log format.
  const std::optional<std::string>& address() const { return address_; }
  // The last line of this run that says something, without time and program; empty before one.
  const std::string& last_line() const { return last_line_; }
  // The last line in a few words: "loading weights, 3.1 of 16.0 GB".
  const std::string& progress() const { return progress_; }
  // The last line of this run that is a warning or an error, in the same form; empty before one.
  const std::string& last_warning() const { return last_warning_; }
  // What this run said when it refused to start; the last line where it did not.
  const std::string& reason() const { return refusal_.empty() ? last_line_ : refusal_; }

 private:
  void TakeLine(absl::string_view line);

  const std::string path_;
  uint64_t offset_ = 0;
  std::string partial_;  // a line whose end is not written yet
  std::optional<std::string> address_;
  std::string last_line_, progress_, last_warning_, refusal_;
};

}  // namespace baton
