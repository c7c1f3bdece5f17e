#include "kernels/mutations/mutation_list.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::mutations {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::vector<ListedMutation> Parsed(absl::string_view contents) {
  auto list = ParseMutationList("list.txt", contents);
  EXPECT_EQ(list.status(), absl::OkStatus());
  return list.ok() ? *std::move(list) : std::vector<ListedMutation>();
}

void ExpectRefused(absl::string_view contents, const std::string& message) {
  const auto list = ParseMutationList("list.txt", contents);
  EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument) << contents;
  EXPECT_THAT(std::string(list.status().message()), HasSubstr(message)) << contents;
}

TEST(MutationListTest, ReadsMutationsOfSeveralFiles) {
  const auto list = Parsed(
      "# What this is.\n"
      "file a/b.cu\n"
      "\n"
      "mutation first: of all\n"
      "- a < b\n"
      "+ a <= b\n"
      "\n"
      "mutation second\n"
      "# Why it matters.\n"
      "  before();\n"
      "- Sync();\n"
      "  after();\n"
      "file c.h\n"
      "mutation third\n"
      "- x\n"
      "+ y\n"
      "+ z\n");
  ASSERT_THAT(list, SizeIs(3));
  EXPECT_EQ(list[0].name, "first: of all");
  EXPECT_EQ(list[0].file, "a/b.cu");
  EXPECT_EQ(list[0].line, 4);
  ASSERT_THAT(list[0].replacements, SizeIs(1));
  EXPECT_EQ(list[0].replacements[0].text, " a < b\n");
  EXPECT_EQ(list[0].replacements[0].wrong, " a <= b\n");
  EXPECT_EQ(list[0].replacements[0].line, 5);
  ASSERT_THAT(list[1].replacements, SizeIs(1));
  EXPECT_EQ(list[1].replacements[0].text, " before();\n Sync();\n after();\n");
  EXPECT_EQ(list[1].replacements[0].wrong, " before();\n after();\n");
  EXPECT_EQ(list[2].file, "c.h");
  EXPECT_EQ(list[2].replacements[0].wrong, " y\n z\n");
}

TEST(MutationListTest, AnEmptyLineBeginsAnotherReplacementOfTheSameMutation) {
  const auto list = Parsed("file a.h\nmutation both\n- a\n+ b\n\n- c\n+ d\n");
  ASSERT_THAT(list, SizeIs(1));
  ASSERT_THAT(list[0].replacements, SizeIs(2));
  EXPECT_EQ(list[0].replacements[1].text, " c\n");
  EXPECT_EQ(list[0].replacements[1].line, 6);
}

TEST(MutationListTest, RefusesWhatDoesNotFitAndSaysWhere) {
  ExpectRefused("file a.h\nremark\n", "list.txt:2: 'remark' begins with neither");
  ExpectRefused("mutation m\n- a\n+ b\n", "list.txt:1: mutation 'm' stands before the first 'file");
  ExpectRefused("file a.h\n- a\n+ b\n", "list.txt:2: code before the first 'mutation ' line");
  ExpectRefused("file a.h\nmutation m\nmutation n\n- a\n+ b\n", "list.txt:2: mutation 'm' changes");
  ExpectRefused("file a.h\nmutation m\n", "list.txt:2: mutation 'm' changes nothing");
  ExpectRefused("file a.h\nmutation m\n  a\n", "list.txt:3: code without a line that begins");
  ExpectRefused("file a.h\nmutation m\n+ a\n", "list.txt:3: there is no text to look for");
  ExpectRefused("file a.h\nmutation m\n- a\n+ b\nmutation m\n- c\n+ d\n",
                "list.txt:5: there are two mutations named 'm'");
}

}  // namespace
}  // namespace baton::mutations
