// docs/troubleshooting.md says nothing that no program says.

#include "tests/messages/troubleshooting.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// The shipped sources, one after the other, with string literals that follow each other joined.
const std::string& Sources() {
  static const auto* text = [] {
    auto* all = new std::string;
    for (const char* top :
         {"common", "kernels", "kv_transfer", "prefill_worker", "decode_worker", "router"}) {
      for (const auto& entry : fs::recursive_directory_iterator(fs::path(BATON_SOURCE_DIR) / top)) {
        const std::string name = entry.path().filename().string();
        const std::string kind = entry.path().extension();
        if ((kind != ".cc" && kind != ".h") || absl::StrContains(name, "_test")) continue;
        std::ifstream file(entry.path());
        all->append(std::istreambuf_iterator<char>(file), {});
      }
    }
    std::string joined;
    joined.reserve(all->size());
    for (size_t i = 0; i < all->size(); ++i) {
      if ((*all)[i] == '"' && (i == 0 || (*all)[i - 1] != '\\')) {
        const size_t next = all->find_first_not_of(" \n", i + 1);
        if (next != all->npos && next > i + 1 && (*all)[next] == '"' &&
            all->find('\n', i + 1) < next) {
          i = next;
          continue;
        }
      }
      joined.push_back((*all)[i]);
    }
    *all = absl::StrReplaceAll(joined, {{"\\\"", "\""}});
    return all;
  }();
  return *text;
}

TEST(TroubleshootingTest, EveryMessageStandsInTheSources) {
  EXPECT_GE(TroubleshootingMessages().size(), 60u);
  for (const std::string& message : TroubleshootingMessages()) {
    size_t fixed = 0;
    for (const std::string& whole : FixedParts(message)) {
      absl::string_view part = whole;
      fixed += part.size();
      // What stands at the ends of a part may be another literal's.
      const auto is_mark = [](char c) {
        return absl::string_view(":;,'\"- ").find(c) != absl::string_view::npos;
      };
      while (!part.empty() && is_mark(part.front())) part.remove_prefix(1);
      while (!part.empty() && is_mark(part.back())) part.remove_suffix(1);
      EXPECT_TRUE(absl::StrContains(Sources(), part)) << "'" << part << "' of: " << message;
    }
    EXPECT_GE(fixed, 5u) << "fits everything: " << message;
  }
}

TEST(TroubleshootingTest, ALineThatNoProgramWritesIsNotFound) {
  EXPECT_FALSE(IsInTroubleshooting("baton-router: something else went wrong"));
  EXPECT_TRUE(IsInTroubleshooting("baton-router: flag --listen needs a value"));
}

}  // namespace
}  // namespace baton
