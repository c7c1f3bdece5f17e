#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/structure/comments.h"
#include "tests/structure/file_contents.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

// The words of an identifier in lower case: kMaxBlocks has k, max and blocks.
std::vector<std::string> WordsOf(const std::string& identifier) {
  std::vector<std::string> words;
  for (size_t i = 0; i < identifier.size(); ++i) {
    const char c = identifier[i];
    if (!absl::ascii_isalpha(c)) continue;
    const char before = i > 0 ? identifier[i - 1] : '_';
    const char after = i + 1 < identifier.size() ? identifier[i + 1] : '_';
    const bool begins =
        !absl::ascii_isalpha(before) ||
        (absl::ascii_isupper(c) && (absl::ascii_islower(before) || absl::ascii_islower(after)));
    if (begins) words.emplace_back();
    words.back() += absl::ascii_tolower(c);
  }
  return words;
}

TEST(WordsOfTest, SplitsAtCapitalsAndUnderscores) {
  EXPECT_THAT(WordsOf("kMaxBlocks"), ElementsAre("k", "max", "blocks"));
  EXPECT_THAT(WordsOf("max_kv_blocks_"), ElementsAre("max", "kv", "blocks"));
  EXPECT_THAT(WordsOf("KVPlane"), ElementsAre("kv", "plane"));
}

// The words in the right column of the last table of docs/glossary.md.
std::set<std::string> ReplacedWords() {
  const std::string page = Contents(fs::path(BATON_SOURCE_DIR) / "docs/glossary.md");
  const size_t table = page.find("| use | replaces |");
  std::set<std::string> words;
  if (table == std::string::npos) return words;
  const std::string rows = page.substr(page.find('\n', page.find("|---", table)));
  static const std::regex kRow("\\|[^|\n]*\\|([^|\n]*)\\|"), kWord("[a-z]+");
  for (std::sregex_iterator row(rows.begin(), rows.end(), kRow), end; row != end; ++row) {
    // Text in brackets, such as "(for a folder)", limits a row of the table to some meanings of its
    // words. This loop skips such text, because IsMeant checks the meaning.
    const std::string cell = std::regex_replace((*row)[1].str(), std::regex("\\([^)]*\\)"), "");
    for (std::sregex_iterator word(cell.begin(), cell.end(), kWord); word != end; ++word) {
      words.insert(word->str());
    }
  }
  return words;
}

// Returns false if the replaced word `words[at]` has its ordinary meaning here, and may stay.
bool IsMeant(const std::string& path, const std::vector<std::string>& words, size_t at) {
  const std::string& word = words[at];
  // In the load tester, "draw" has its ordinary meaning: it draws plots, and random numbers from a
  // distribution.
  if (absl::StartsWith(word, "draw")) return !absl::StartsWith(path, "tests/goodput/");
  // Only a matrix multiplication on the device must be called a GEMM. Elsewhere, "product" has its
  // ordinary meanings, as for random numbers and merges of tokens.
  if (absl::StartsWith(word, "product")) {
    return absl::StartsWith(path, "kernels/cuda") || absl::StartsWith(path, "kernels/device");
  }
  // "Room" is replaced only where it means a folder. In identifiers it means free space.
  if (word == "room") return false;
  // The field's name of a policy.
  if (word == "least" && at + 1 < words.size() && words[at + 1] == "loaded") return false;
  if (word == "most" || word == "least") return at == 0 || words[at - 1] != "at";
  return true;
}

TEST(IdentifiersTest, HaveNoWordThatTheGlossaryReplaced) {
  const fs::path root = BATON_SOURCE_DIR;
  const std::set<std::string> replaced = ReplacedWords();
  ASSERT_GT(replaced.size(), 10u);
  std::map<std::string, std::string> wrong;  // identifier to a file that has it
  int read = 0;
  for (const char* top : {"common", "kernels", "kv_transfer", "prefill_worker", "decode_worker",
                          "router", "tests", "proto"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      static const std::set<std::string> kEndings = {".h", ".cc", ".cu", ".proto"};
      if (kEndings.count(entry.path().extension()) == 0) continue;
      const std::string path = fs::relative(entry.path(), root);
      const std::string code = CodeAlone(Contents(entry.path()));
      for (size_t at = 0; at < code.size();) {
        const size_t begin = at;
        while (at < code.size() && (absl::ascii_isalnum(code[at]) || code[at] == '_')) ++at;
        if (at == begin) {
          ++at;
          continue;
        }
        ++read;
        const std::string name = code.substr(begin, at - begin);
        // The name std::promise comes from the standard library.
        if (begin >= 5 && code.compare(begin - 5, 5, "std::") == 0) continue;
        // Skips names of test cases: they are sentences, in which a replaced word may have its
        // ordinary meaning.
        if (name == "TEST" || name == "TEST_F" || name == "TEST_P") {
          at = std::min(code.find(')', at), code.size());
          continue;
        }
        const std::vector<std::string> words = WordsOf(name);
        for (size_t i = 0; i < words.size(); ++i) {
          if (replaced.count(words[i]) > 0 && IsMeant(path, words, i)) wrong[name] = path;
        }
      }
    }
  }
  EXPECT_GT(read, 100000);
  EXPECT_THAT(wrong, IsEmpty());
}

}  // namespace
}  // namespace baton
