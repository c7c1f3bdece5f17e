#include "common/base/log.h"

#include <atomic>
#include <cstdint>
#include <iterator>

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log_output.h"

namespace baton {
namespace {

std::atomic<Severity> lowest_severity{Severity::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};
std::atomic<LogOutput*> output{nullptr};  // null: lines are written to standard error directly

std::string& ProgramName() {
  static auto* name = new std::string("baton");
  return *name;
}

constexpr absl::string_view kLetters = "DIWE";
constexpr absl::string_view kLevels[] = {"debug", "info", "warn", "error"};
constexpr absl::string_view kFormats[] = {"text", "json"};
constexpr size_t kMaxValueBytes = 2000;

// Decodes the UTF-8 character at the start of `text` into `*character` and returns its length in
// bytes. Returns 0 if `text` does not start with a valid character.
int TakeCharacter(absl::string_view text, uint32_t* character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return *character = first, 1;
  const int size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (size == 0 || first > 0xf4 || text.size() < static_cast<size_t>(size)) return 0;
  uint32_t value = first & (0x7fu >> size);
  for (int i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kMin[size] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
  return *character = value, size;
}

// Returns true if `c` may be written as it is. False for control characters, and for characters
// that start a line or change the text direction in a viewer.
bool Shown(uint32_t c) {
  return c >= 0x20 && (c < 0x7f || c > 0x9f) && !(c >= 0x2028 && c <= 0x202e) &&
         !(c >= 0x2066 && c <= 0x2069) && c != 0x200e && c != 0x200f && c != 0x61c && c != 0xfeff;
}

void AppendJsonString(absl::string_view text, std::string* line) {
  *line += '"';
  while (!text.empty()) {
    uint32_t c = 0;
    const int size = TakeCharacter(text, &c);
    if (size == 0) {
      *line += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      *line += '\\';
      *line += static_cast<char>(c);
    } else if (!Shown(c)) {  // all characters that are not Shown are below 2^16
      absl::StrAppendFormat(line, "\\u%04x", c);
    } else {
      line->append(text.data(), static_cast<size_t>(size));
    }
    text.remove_prefix(size == 0 ? 1 : static_cast<size_t>(size));
  }
  *line += '"';
}

// Appends `text` unchanged if no character of it could be mistaken for log syntax. Otherwise
// appends it in double quotes, with C escapes.
void AppendText(absl::string_view text, std::string* line) {
  bool plain = !text.empty();
  for (const char c : text) plain &= c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  if (plain) {
    absl::StrAppend(line, text);
  } else {
    // CEscape also escapes single quotes. Inside double quotes they need no escape, and a search
    // for the text would not find the escaped form.
    absl::StrAppend(line, "\"", absl::StrReplaceAll(absl::CEscape(text), {{"\\'", "'"}}), "\"");
  }
}

std::string Cut(const std::string& value) {
  if (value.size() <= kMaxValueBytes) return value;
  size_t end = kMaxValueBytes;
  while (end > kMaxValueBytes - 4 && (static_cast<uint8_t>(value[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(value.substr(0, end), "... (", value.size(), " bytes)");
}

template <typename Value, size_t n>
bool ParseName(absl::string_view text, const absl::string_view (&names)[n], Value* value,
               std::string* error) {
  for (size_t i = 0; i < n; ++i) {
    if (text == names[i]) return *value = static_cast<Value>(i), true;
  }
  *error = absl::StrCat("no such name: ", text);
  return false;
}

std::string LineOf(LogFormat format, absl::string_view time, Severity severity,
                   absl::string_view program, absl::string_view event, const LogField* begin,
                   const LogField* end) {
  const auto level = static_cast<size_t>(severity);
  std::string line;
  if (format == LogFormat::kText) {
    line = absl::StrCat(time, " ", kLetters.substr(level, 1), " ", program, " ", event);
    for (const LogField* field = begin; field != end; ++field) {
      absl::StrAppend(&line, " ", field->name, "=");
      AppendText(Cut(field->value), &line);
    }
  } else {
    line =
        absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", kLevels[level], "\",\"component\":");
    AppendJsonString(program, &line);
    absl::StrAppend(&line, ",\"event\":\"", event, "\"");
    for (const LogField* field = begin; field != end; ++field) {
      absl::StrAppend(&line, ",\"", field->name, "\":");
      if (field->bare) {
        line += field->value;
      } else {
        AppendJsonString(Cut(field->value), &line);
      }
    }
    line += '}';
  }
  line += '\n';
  return line;
}

void Write(Severity severity, absl::string_view event, const LogField* begin, const LogField* end) {
  if (!LogEnabled(severity)) return;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  const std::string line = LineOf(log_format.load(std::memory_order_relaxed), time, severity,
                                  ProgramName(), event, begin, end);
  if (LogOutput* const to = output.load(std::memory_order_acquire)) {
    to->Write(line, [&](uint64_t dropped) {
      const LogField lines("lines", dropped);
      return LineOf(log_format.load(std::memory_order_relaxed), time, Severity::kWarning,
                    ProgramName(), "log_lines_dropped", &lines, &lines + 1);
    });
    return;
  }
  // A single write keeps the lines of several threads and processes apart.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetLogLevel(Severity lowest) { lowest_severity = lowest; }
void SetLogFormat(LogFormat format) { log_format = format; }
void SetLogProgram(absl::string_view name) { ProgramName() = std::string(name); }
void NeverWaitForLogReader() {
  // Never destroyed: other threads may write lines until the process has ended.
  static auto* const standard_error = new LogOutput(STDERR_FILENO);
  output.store(standard_error, std::memory_order_release);
}
uint64_t LogLinesDropped() {
  const LogOutput* const to = output.load(std::memory_order_acquire);
  return to == nullptr ? 0 : to->dropped();
}
bool LogEnabled(Severity severity) {
  return severity >= lowest_severity.load(std::memory_order_relaxed);
}

std::string LogLine(LogFormat format, absl::string_view time, Severity severity,
                    absl::string_view program, absl::string_view event,
                    std::initializer_list<LogField> fields) {
  return LineOf(format, time, severity, program, event, fields.begin(), fields.end());
}

void Log(Severity severity, absl::string_view event, std::initializer_list<LogField> fields) {
  Write(severity, event, fields.begin(), fields.end());
}
void Log(Severity severity, absl::string_view event, const std::vector<LogField>& fields) {
  Write(severity, event, fields.data(), fields.data() + fields.size());
}

bool AbslParseFlag(absl::string_view text, Severity* severity, std::string* error) {
  return ParseName(text, kLevels, severity, error);
}
std::string AbslUnparseFlag(Severity severity) {
  return std::string(kLevels[static_cast<size_t>(severity)]);
}
bool AbslParseFlag(absl::string_view text, LogFormat* format, std::string* error) {
  return ParseName(text, kFormats, format, error);
}
std::string AbslUnparseFlag(LogFormat format) {
  return std::string(kFormats[static_cast<size_t>(format)]);
}

}  // namespace baton
