#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

enum class Severity { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// One named value of a log line. The name is one of ours, in snake_case; the value may come from
// anywhere.
struct LogField {
  LogField(absl::string_view field_name, const absl::AlphaNum& field_value)
      : name(field_name), value(field_value.Piece()) {}
  // Makes a field from a number. Its value has no quotes in JSON.
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  LogField(absl::string_view field_name, T field_value) : name(field_name) {
    if constexpr (std::is_same_v<T, bool>) {
      value = field_value ? "true" : "false";
      bare = true;
    } else {
      value = absl::StrCat(field_value);
      bare = value.find_first_not_of("0123456789+-.e") == value.npos;  // JSON has no inf and no nan
    }
  }
  absl::string_view name;
  std::string value;
  bool bare = false;  // true if JSON shows the value without quotes
};

// Name of the field that holds a request's id, in every log line about a request.
inline constexpr absl::string_view kRequestId = "request_id";

// Writes one line to standard error with a single write: time, severity, program, event, then the
// fields. Values are cut at 2,000 bytes. Characters that could be mistaken for log syntax are
// escaped: control characters, in text also everything outside ASCII, and in JSON invalid UTF-8. So
// a value can't start a line or a field, and can't send a command to a terminal. Any thread.
void Log(Severity severity, absl::string_view event, std::initializer_list<LogField> fields = {});
// Writes one line like the other Log function, but takes the fields as a vector. Use it if the
// number of fields is known only at run time.
void Log(Severity severity, absl::string_view event, const std::vector<LogField>& fields);

// Returns true if lines of this severity are written. Use it if the fields of a line are expensive
// to compute.
bool LogEnabled(Severity severity);
// Drops lines below `lowest`. The default is kInfo. Call only from `main`, before threads start.
void SetLogLevel(Severity lowest);
// Sets the format of all lines. The default is kText. Call only from `main`, before threads start.
void SetLogFormat(LogFormat format);
// Sets the program's name, which stands in every line. Call only from `main`, before threads start.
void SetLogProgram(absl::string_view name);

// From now on, lines are dropped and counted while the reader of standard error takes no more
// (LogOutput). Until then, Log() waits for the reader. Call only from `main`, before threads start.
void NeverWaitForLogReader();
// Returns the number of lines that were dropped. Any thread.
uint64_t LogLinesDropped();

// Returns the line that Log() would write, with its line end.
std::string LogLine(LogFormat format, absl::string_view time, Severity severity,
                    absl::string_view program, absl::string_view event,
                    std::initializer_list<LogField> fields);

// Parsers for --log-level (debug, info, warn, error) and --log-format (text, json).
bool AbslParseFlag(absl::string_view text, Severity* severity, std::string* error);
std::string AbslUnparseFlag(Severity severity);
bool AbslParseFlag(absl::string_view text, LogFormat* format, std::string* error);
std::string AbslUnparseFlag(LogFormat format);

}  // namespace baton
