#include "common/tokenizer/normalizer.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(NormalizerTest, ComposesAndOrdersMarks) {
  EXPECT_EQ(ComposeNfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(ComposeNfc("s\u0307\u0323"), "\u1e69");
  EXPECT_EQ(ComposeNfc("\u212b"), "\u00c5");
  EXPECT_EQ(ComposeNfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(ComposeNfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(ComposeNfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(ComposeNfc("\uac00\u11a7\u11a8"), "\uac00\u11a7\u11a8");
  EXPECT_EQ(ComposeNfc("plain"), "plain");
  EXPECT_EQ(ComposeNfc(""), "");
}

TEST(NormalizerTest, MarksNewerThanUnicode9StayWhereTheyAre) {
  EXPECT_EQ(ComposeNfc("a\u0315\u07fd\u0300"), "a\u0315\u07fd\u0300");
  EXPECT_EQ(ComposeNfc("a\u0315\u0300"), "\u00e0\u0315");
  EXPECT_EQ(ComposeNfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

// Sorting by insertion would take hours.
TEST(NormalizerTest, MegabyteOfMarksIsSorted) {
  std::string text = "a", sorted = "a";
  constexpr int kPairs = 250'000;
  for (int i = 0; i < kPairs; ++i) text += "\u0315\u0323";
  const std::string composed = ComposeNfc(text);
  for (int i = 1; i < kPairs; ++i) sorted += "\u0323";
  for (int i = 0; i < kPairs; ++i) sorted += "\u0315";
  EXPECT_EQ(composed, "\u1ea1" + sorted.substr(1));
}

}  // namespace
}  // namespace baton
