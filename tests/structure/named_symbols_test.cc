#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/structure/file_contents.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

bool HasWord(const std::string& text, const std::string& word) {
  return std::regex_search(text, std::regex("\\b" + word + "\\b"));
}

// The parameters are a page that names symbols as `path: Symbol`, and the min number of symbols on
// this page.
class NamedSymbolsTest : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(NamedSymbolsTest, AreInTheirFiles) {
  const auto [name, min_expected] = GetParam();
  const fs::path root = BATON_SOURCE_DIR;
  const std::string page = Contents(root / name);
  const std::regex named("`([A-Za-z0-9_/]+\\.[a-z]+): ([A-Za-z_:]+)`");
  int found = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), named), end; it != end; ++it, ++found) {
    const std::string file = (*it)[1], symbol = (*it)[2];
    const std::string source = Contents(root / file);
    ASSERT_FALSE(source.empty()) << file;
    // A member may be declared inside its class, without the class's name before it. So the parts
    // of the symbol are searched one by one.
    const std::vector<std::string> parts = absl::StrSplit(symbol, "::");
    for (const std::string& part : parts) {
      EXPECT_TRUE(HasWord(source, part)) << file << " has no " << part << " of " << symbol;
    }
  }
  EXPECT_GE(found, min_expected);
}

INSTANTIATE_TEST_SUITE_P(Pages, NamedSymbolsTest,
                         testing::Values(std::pair("docs/life-of-a-request.md", 80),
                                         std::pair("docs/extending.md", 40),
                                         std::pair("CONTRIBUTING.md", 5)));

}  // namespace
}  // namespace baton
