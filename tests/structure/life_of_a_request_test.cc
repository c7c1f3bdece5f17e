#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string Contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool HasWord(const std::string& text, const std::string& word) {
  return std::regex_search(text, std::regex("\\b" + word + "\\b"));
}

TEST(LifeOfARequestTest, EverySymbolIsInItsFile) {
  const fs::path root = BATON_SOURCE_DIR;
  const std::string page = Contents(root / "docs/life-of-a-request.md");
  const std::regex hop("`([a-z0-9_/]+\\.[a-z]+): ([A-Za-z:]+)`");
  int hops = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), hop), end; it != end; ++it, ++hops) {
    const std::string file = (*it)[1], symbol = (*it)[2];
    const std::string source = Contents(root / file);
    ASSERT_FALSE(source.empty()) << file;
    // A member may be declared inside of its class, without the class's name before it.
    const std::vector<std::string> parts = absl::StrSplit(symbol, "::");
    for (const std::string& part : parts) {
      EXPECT_TRUE(HasWord(source, part)) << file << " has no " << part << " of " << symbol;
    }
  }
  EXPECT_GE(hops, 40);
}

}  // namespace
}  // namespace baton
