#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Reads the log of one of our processes while the process writes it. Use from one thread.
class ProcessLog {
 public:
  explicit ProcessLog(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Call when the process starts or restarts. Lines that are in the log by now belong to an earlier
  // run and are ignored.
  void BeginRun();
  // Reads the lines written since the last call. Cheap when no line was written.
  void ReadNew();
  // The address at which this run listens. Empty until the log, in text or in JSON, shows the
  // address.
  const std::optional<std::string>& address() const { return address_; }
  // The address at which this run serves HTTP. Empty until the log shows it, and always if the
  // process serves no HTTP.
  const std::optional<std::string>& http_address() const { return http_address_; }
  // The last line of this run that is not empty, without time and program. Empty if this run has no
  // such line yet.
  const std::string& last_line() const { return last_line_; }
  // The last line, shortened to a few words, such as "loading weights, 3.1 of 16.0 GB".
  const std::string& progress() const { return progress_; }
  // The last line of this run that is a warning or an error, in the form of last_line(). Empty if
  // there is none yet.
  const std::string& last_warning() const { return last_warning_; }
  // The reason why the process refused to start. If it did not refuse, the last line that it has
  // logged.
  const std::string& reason() const { return refusal_.empty() ? last_line_ : refusal_; }

 private:
  void TakeLine(absl::string_view line);

  const std::string path_;
  uint64_t offset_ = 0;
  std::string partial_;  // a line whose end has not been written yet
  std::optional<std::string> address_, http_address_;
  std::string last_line_, progress_, last_warning_, refusal_;
};

}  // namespace baton
