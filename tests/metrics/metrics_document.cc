#include "tests/metrics/metrics_document.h"

#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace baton {

std::map<std::string, std::set<MetricRow>> MetricsDocument() {
  std::map<std::string, std::set<MetricRow>> rows;
  std::ifstream file(BATON_SOURCE_DIR "/docs/metrics.md");
  std::string heading;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "## ")) heading = line.substr(3);
    if (!absl::StartsWith(line, "| `")) continue;
    const std::vector<std::string> cells =
        absl::StrSplit(absl::StrReplaceAll(line, {{"`", ""}}), " | ");
    if (cells.size() != 4) {
      ADD_FAILURE() << "not four cells: " << line;
      continue;
    }
    const std::set<std::string> labels = absl::StrSplit(cells[2], ", ", absl::SkipWhitespace());
    EXPECT_TRUE(rows[heading].insert({cells[0].substr(2), cells[1], labels}).second) << line;
  }
  return rows;
}

}  // namespace baton
