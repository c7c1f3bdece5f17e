#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::mutations {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class MutateSourcesTest : public testing::Test {
 protected:
  MutateSourcesTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~MutateSourcesTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(folder_ / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // Runs the program in the folder and stores its output in `said_`. Returns its exit status.
  int Run(const std::string& arguments) {
    const std::string command =
        absl::StrCat("cd ", folder_.string(), " && " BATON_MUTATE_SOURCES " ", arguments, " 2>&1");
    FILE* const pipe = popen(command.c_str(), "r");
    said_.clear();
    char text[512];
    while (std::fgets(text, sizeof(text), pipe) != nullptr) said_ += text;
    return WEXITSTATUS(pclose(pipe));
  }

  const fs::path folder_;
  std::string said_;
};

TEST_F(MutateSourcesTest, WritesACopyOfEachSourceAndTheNames) {
  Write("a.h", "int F() {\n  return 1;\n}\n");
  Write("b.h", "int G();\n");
  Write("list.txt", "file a.h\nmutation wrong \"one\"\n- return 1;\n+ return 2;\n");
  EXPECT_EQ(Run("out list.txt -- a.h b.h"), 0) << said_;
  EXPECT_THAT(Read("out/a.h"),
              EndsWith(absl::StrCat("#line 1 \"", (folder_ / "a.h").string(),
                                    "\"\nint F() {\n  return (::baton::mutations::IsOn(1) ? (2) : "
                                    "(1));\n}\n")));
  EXPECT_THAT(Read("out/b.h"), EndsWith("\nint G();\n"));
  EXPECT_THAT(Read("out/all_mutations.cc"), HasSubstr(R"({1, "list", "wrong \"one\"", "a.h:2"})"));
}

TEST_F(MutateSourcesTest, WritesOnlyWhatIsNew) {
  Write("a.h", "int F() { return 1; }\n");
  Write("b.h", "int G() { return 1; }\n");
  Write("list.txt", "file a.h\nmutation m\n- 1\n+ 2\n");
  ASSERT_EQ(Run("out list.txt -- a.h b.h"), 0) << said_;
  const auto long_ago = fs::last_write_time(folder_ / "out/a.h") - std::chrono::hours(1);
  fs::last_write_time(folder_ / "out/a.h", long_ago);
  fs::last_write_time(folder_ / "out/b.h", long_ago);
  Write("b.h", "int G() { return 3; }\n");
  ASSERT_EQ(Run("out list.txt -- a.h b.h"), 0) << said_;
  EXPECT_EQ(fs::last_write_time(folder_ / "out/a.h"), long_ago);
  EXPECT_THAT(Read("out/b.h"), HasSubstr("return 3;"));
}

TEST_F(MutateSourcesTest, SaysAllThatDoesNotFitAndWritesNothing) {
  Write("a.h", "void F() { a(); b(); a(); }\n");
  Write("list.txt",
        "file a.h\n"
        "mutation twice\n- a();\n\n"
        "mutation gone\n- c();\n\n"
        "mutation good\n- b();\n\n"
        "file other.h\n"
        "mutation elsewhere\n- d();\n");
  EXPECT_EQ(Run("out list.txt missing.txt -- a.h"), 1);
  EXPECT_EQ(said_,
            "\nMutations do not fit the sources (kernels/mutations/README.md):\n"
            "list.txt:12: mutation 'elsewhere': other.h is not among the sources that are copied\n"
            "missing.txt: cannot be read\n"
            "list.txt:3: mutation 'twice': the text stands 2 times in a.h (lines 1, 1); add lines "
            "around it, each with a space before it, so that it stands there exactly once\n"
            "list.txt:6: mutation 'gone': the text stands nowhere in a.h; it must stand there "
            "exactly once\n");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(MutateSourcesTest, RefusesMoreMutationsThanThereIsRoomFor) {
  std::string list = "file a.h\n";
  for (int i = 1; i <= 1001; ++i) absl::StrAppend(&list, "mutation ", i, "\n- 1\n+ 2\n");
  Write("a.h", "int F() { return 1; }\n");
  Write("list.txt", list);
  EXPECT_EQ(Run("out list.txt -- a.h"), 1);
  EXPECT_THAT(said_, HasSubstr("mutation '1001': there are more than 1000"));
}

TEST_F(MutateSourcesTest, ExplainsItself) {
  EXPECT_EQ(Run("out list.txt"), 2);
  EXPECT_THAT(said_, HasSubstr("FOLDER LIST... -- SOURCE..."));
}

}  // namespace
}  // namespace baton::mutations
