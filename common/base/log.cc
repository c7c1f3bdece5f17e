#include "common/base/log.h"

#include <atomic>

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

std::atomic<Severity> lowest_severity{Severity::kInfo};

std::string& ProgramName() {
  static auto* name = new std::string("baton");
  return *name;
}

constexpr absl::string_view kLetters = "DIWE";

}  // namespace

void SetLogLevel(Severity lowest) { lowest_severity = lowest; }
void SetLogProgram(absl::string_view name) { ProgramName() = std::string(name); }

void Log(Severity severity, absl::string_view event, std::initializer_list<LogField> fields) {
  if (severity < lowest_severity.load(std::memory_order_relaxed)) return;
  std::string line = absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()), " ",
      kLetters.substr(static_cast<size_t>(severity), 1), " ", ProgramName(), " ", event);
  for (const LogField& field : fields) {
    const bool quote =
        field.value.empty() || field.value.find_first_of(" \"\n\t=") != std::string::npos;
    absl::StrAppend(&line, " ", field.name, "=");
    if (quote) {
      absl::StrAppend(&line, "\"", absl::CEscape(field.value), "\"");
    } else {
      line += field.value;
    }
  }
  line += '\n';
  // One write, so that lines of threads and processes never mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace baton
