#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

enum class Severity { kDebug, kInfo, kWarning, kError };

// One named value of a log line.
struct LogField {
  LogField(absl::string_view field_name, const absl::AlphaNum& field_value)
      : name(field_name), value(field_value.Piece()) {}
  absl::string_view name;
  std::string value;
};

// Writes one line to standard error: time, severity, program, event, then name=value pairs. Values
// with spaces are quoted. Any thread.
void Log(Severity severity, absl::string_view event, std::initializer_list<LogField> fields = {});

// Lines below this are dropped; kInfo until set. `main` only, before threads start.
void SetLogLevel(Severity lowest);
// Stands in every line. `main` only.
void SetLogProgram(absl::string_view name);

}  // namespace baton
