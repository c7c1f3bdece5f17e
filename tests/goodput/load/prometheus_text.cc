#include "tests/goodput/load/prometheus_text.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

// Returns the length in bytes of the series name at the start of a line: "name" or
// "name{label="value",...}". Returns 0 if the line has none. A label value may hold braces, and any
// character after a backslash.
size_t SeriesBytes(absl::string_view line) {
  const size_t name = std::min(line.find_first_of("{ \t"), line.size());
  if (name == line.size() || line[name] != '{') return name;
  bool quoted = false;
  for (size_t i = name; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && line[i] == '}') {
      return i + 1;
    }
  }
  return 0;
}

}  // namespace

std::vector<std::pair<std::string, double>> GaugesIn(absl::string_view text,
                                                     absl::string_view prefix) {
  std::vector<std::pair<std::string, double>> gauges;
  std::set<absl::string_view> names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "# TYPE ")) {
      const std::vector<absl::string_view> words =
          absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
      if (words.size() == 2 && words[1] == "gauge") names.insert(words[0]);
      continue;
    }
    if (line.empty() || line[0] == '#' || !absl::StartsWith(line, prefix)) continue;
    const size_t bytes = SeriesBytes(line);
    if (bytes == 0 || names.count(line.substr(0, line.find_first_of("{ \t"))) == 0) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(bytes), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    double value = 0;  // A timestamp may follow; it is ignored.
    if (words.empty() || words.size() > 2 || !absl::SimpleAtod(words[0], &value)) continue;
    gauges.emplace_back(line.substr(0, bytes), value);
  }
  return gauges;
}

}  // namespace baton
