#include "tests/structure/comments.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/structure/file_contents.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

TEST(CommentsOfCodeTest, FindsFullLinesBlocksAndWhatStandsBehindCode) {
  EXPECT_THAT(CommentsOfCode("// One,\n// and on.\nint a;  // Behind.\n"
                             "// Two.\n  // Three.\n\n  // Four.\n/* Five,\n * and on. */ int b;\n"
                             "// Six.\n"),
              ElementsAre(FieldsAre(1, "One, and on."), FieldsAre(3, "Behind."),
                          FieldsAre(4, "Two."), FieldsAre(5, "Three."), FieldsAre(7, "Four."),
                          FieldsAre(8, "Five, and on."), FieldsAre(10, "Six.")));
}

TEST(CommentsOfCodeTest, FindsNoneInLiterals) {
  EXPECT_THAT(CommentsOfCode("a = \"http://x \\\" // y\";\nb = '\"'; c = 1'000; // Z.\n"
                             "d = R\"x(\n// raw \" )\")x\"; // W.\n"),
              ElementsAre(FieldsAre(2, "Z."), FieldsAre(4, "W.")));
}

TEST(CodeAloneTest, BlanksCommentsAndLiterals) {
  EXPECT_EQ(CodeAlone("a = \"b\";  // c\n/* d\n*/ e;"), "a =    ;      \n    \n   e;");
}

TEST(CommentsOfScriptTest, FindsFullLinesAndWhatStandsBehindCode) {
  EXPECT_THAT(
      CommentsOfScript("#!/bin/sh\n# One,\n# and on.\na=1  # Behind.\nb='x # y' c=$#\n"
                       "  ## Two.\n"),
      ElementsAre(FieldsAre(2, "One, and on."), FieldsAre(4, "Behind."), FieldsAre(6, "Two.")));
}

TEST(FlagDescriptionsTest, FindsTheLastArgument) {
  EXPECT_THAT(
      FlagDescriptions("\nABSL_FLAG(int, a, F(1, 2), \"first, of all \"\n  \"and on\");\n"
                       "ABSL_FLAG(bool, b, false,\n  \"second\");\nABSL_FLAG(int, c, 0, kHelp);"),
      ElementsAre(FieldsAre(2, "first, of all "), FieldsAre(4, "second")));
}

TEST(FirstWordTest, LeavesOutMarksAndCase) {
  EXPECT_EQ(FirstWord(" -- \"Whose, then?"), "whose");
  EXPECT_EQ(FirstWord("Bytes"), "bytes");
  EXPECT_EQ(FirstWord("..."), "");
}

enum class Kind { kNone, kCode, kScript };

Kind KindOf(const fs::path& path) {
  const std::string name = path.filename(), extension = path.extension();
  static const std::set<std::string> kCode = {".h", ".cc", ".cu", ".cuh", ".inc", ".proto"};
  static const std::set<std::string> kScript = {".cmake", ".py", ".sh", ".yaml", ".yml"};
  if (kCode.count(extension) > 0) return Kind::kCode;
  const bool has_shebang = extension.empty() && absl::StartsWith(Contents(path), "#!");
  return kScript.count(extension) > 0 || has_shebang || name == "CMakeLists.txt" ||
                 absl::StartsWith(name, "Dockerfile")
             ? Kind::kScript
             : Kind::kNone;
}

// Words that must not begin a comment. A comment that begins with such a word usually needs the
// line before or after it, and few readers understand it at the first reading.
const std::set<std::string>& WordsThatBeginNoComment() {
  static const auto* words = new std::set<std::string>{
      "of", "that", "whether", "nor", "what", "who", "how", "where", "whose", "by", "with"};
  return *words;
}

TEST(CommentsTest, NoneBeginsInTheMiddleOfASentence) {
  const fs::path root = BATON_SOURCE_DIR;
  std::set<std::string> allowed;
  for (const absl::string_view line :
       absl::StrSplit(Contents(root / "tests/structure/comments_allowed.txt"), '\n')) {
    if (!line.empty()) allowed.insert(std::string(line));
  }
  EXPECT_LE(allowed.size(), 20u);
  int read = 0;
  std::set<std::string> used;
  std::vector<std::string> wrong;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string path = fs::relative(entry->path(), root);
    // Skips build folders, and hidden folders except .ci.
    if (entry->is_directory() && (fs::exists(entry->path() / "CMakeCache.txt") || path == "build" ||
                                  (path[0] == '.' && path != ".ci"))) {
      entry.disable_recursion_pending();
    }
    if (!entry->is_regular_file()) continue;
    const Kind kind = KindOf(entry->path());
    if (kind == Kind::kNone) continue;
    const std::string source = Contents(entry->path());
    std::vector<Comment> comments =
        kind == Kind::kCode ? CommentsOfCode(source) : CommentsOfScript(source);
    if (kind == Kind::kCode) {
      std::vector<Comment> flags = FlagDescriptions(source);
      std::move(flags.begin(), flags.end(), std::back_inserter(comments));
    }
    read += static_cast<int>(comments.size());
    for (const Comment& comment : comments) {
      if (WordsThatBeginNoComment().count(FirstWord(comment.text)) == 0) continue;
      if (allowed.count(comment.text) > 0) {
        used.insert(comment.text);
      } else {
        wrong.push_back(absl::StrCat(path, ":", comment.line, ": ", comment.text));
      }
    }
  }
  EXPECT_GT(read, 5000);
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_EQ(used, allowed) << "these are no comments any more";
}

}  // namespace
}  // namespace baton
