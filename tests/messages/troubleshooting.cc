#include "tests/messages/troubleshooting.h"

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace baton {

const std::vector<KnownMessage>& TroubleshootingMessages() {
  static const auto* messages = [] {
    auto* found = new std::vector<KnownMessage>;
    std::ifstream file(BATON_SOURCE_DIR "/docs/troubleshooting.md");
    BATON_CHECK(file.good());
    bool in_table = false;
    std::string section;
    for (std::string line; std::getline(file, line);) {
      if (absl::StartsWith(line, "## ")) section = line.substr(3);
      if (!absl::StartsWith(line, "|")) in_table = false;
      if (absl::StartsWith(line, "| message |")) in_table = true;
      if (!in_table || !absl::StartsWith(line, "| `")) continue;
      const size_t end = line.find("` |");
      BATON_CHECK(end != line.npos) << line;
      const std::string rest = line.substr(end, line.rfind('|') - end);
      found->push_back({section, line.substr(3, end - 3), rest.substr(rest.rfind('|') + 1)});
    }
    return found;
  }();
  return *messages;
}

std::vector<std::string> FixedParts(absl::string_view message) {
  return absl::StrSplit(message, "…", absl::SkipEmpty());
}

bool IsInTroubleshooting(absl::string_view line, absl::string_view section) {
  for (const KnownMessage& message : TroubleshootingMessages()) {
    if (!section.empty() && message.section != section) continue;
    size_t at = 0;
    bool fits = true;
    for (const std::string& part : FixedParts(message.text)) {
      const size_t found = line.find(part, at);
      fits = fits && found != line.npos;
      if (!fits) break;
      at = found + part.size();
    }
    if (fits) return true;
  }
  return false;
}

}  // namespace baton
