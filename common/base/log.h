#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

enum class Severity { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// One named value of a log line. A name is ours, in snake_case; a value may be anybody's.
struct LogField {
  LogField(absl::string_view field_name, const absl::AlphaNum& field_value)
      : name(field_name), value(field_value.Piece()) {}
  // Numbers stay numbers in JSON.
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  LogField(absl::string_view field_name, T field_value) : name(field_name) {
    if constexpr (std::is_same_v<T, bool>) {
      value = field_value ? "true" : "false";
      bare = true;
    } else {
      value = absl::StrCat(field_value);
      bare = value.find_first_not_of("0123456789+-.e") == value.npos;  // no inf, no nan
    }
  }
  absl::string_view name;
  std::string value;
  bool bare = false;  // JSON takes it without quotes
};

// The name of a request's id in every line that belongs to one.
inline constexpr absl::string_view kRequestId = "request_id";

// Writes one line to standard error, in one write: time, severity, program, event, then the fields.
// Values are cut at 2,000 bytes; what could be taken for more than text (control characters, what
// is not ASCII in text, what is not UTF-8 in JSON) is escaped, so that nobody's value can begin a
// line, a field or a terminal's command. Any thread.
void Log(Severity severity, absl::string_view event, std::initializer_list<LogField> fields = {});
// The same of fields that are as many as there are.
void Log(Severity severity, absl::string_view event, const std::vector<LogField>& fields);

// Whether such lines are written: for callers whose fields cost something.
bool LogEnabled(Severity severity);
// Lines below this are dropped; kInfo until set. `main` only, before threads start.
void SetLogLevel(Severity lowest);
// kText until set. `main` only, before threads start.
void SetLogFormat(LogFormat format);
// Stands in every line. `main` only.
void SetLogProgram(absl::string_view name);

// A line as Log() writes it, with its end.
std::string LogLine(LogFormat format, absl::string_view time, Severity severity,
                    absl::string_view program, absl::string_view event,
                    std::initializer_list<LogField> fields);

// For --log-level: debug, info, warn, error. For --log-format: text, json.
bool AbslParseFlag(absl::string_view text, Severity* severity, std::string* error);
std::string AbslUnparseFlag(Severity severity);
bool AbslParseFlag(absl::string_view text, LogFormat* format, std::string* error);
std::string AbslUnparseFlag(LogFormat format);

}  // namespace baton
