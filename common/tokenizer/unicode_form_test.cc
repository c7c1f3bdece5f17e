#include "common/tokenizer/unicode_form.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/encode_stop.h"

namespace baton {
namespace {

std::string Nfc(absl::string_view text) {
  EncodeStop never;
  return NormalizeUnicode(UnicodeForm::kNfc, text, &never).value();
}

TEST(UnicodeFormTest, ComposesAndOrdersMarks) {
  EXPECT_EQ(Nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(Nfc("s\u0307\u0323"), "\u1e69");
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");  // U+0958 is excluded from composition
  EXPECT_EQ(Nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(Nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\uac00\u11a7\u11a8"), "\uac00\u11a7\u11a8");
  EXPECT_EQ(Nfc("plain"), "plain");
  EXPECT_EQ(Nfc(""), "");
}

TEST(UnicodeFormTest, MarksNewerThanUnicode9StayWhereTheyAre) {
  EXPECT_EQ(Nfc("a\u0315\u07fd\u0300"), "a\u0315\u07fd\u0300");
  EXPECT_EQ(Nfc("a\u0315\u0300"), "\u00e0\u0315");
  EXPECT_EQ(Nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

// A long text is normalised in parts.
TEST(UnicodeFormTest, LongTextGivesWhatItsPartsGive) {
  std::string text, expected;
  for (int i = 0; i < 2000; ++i) {
    text += "s\u0307\u0323 a\u0301";
    expected += "\u1e69 \u00e1";
  }
  EXPECT_EQ(Nfc(text), expected);
}

TEST(UnicodeFormTest, TextThatGrowsTooMuchIsRefused) {
  const auto normalize = [](UnicodeForm form, absl::string_view unit, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) absl::StrAppend(&text, unit);
    EncodeStop never;
    return NormalizeUnicode(form, text, &never).status();
  };
  EXPECT_TRUE(normalize(UnicodeForm::kNfkc, "\ufdfa", 100).ok());
  EXPECT_EQ(normalize(UnicodeForm::kNfkc, "\ufdfa", 1000),
            absl::InvalidArgumentError("the text grows to more than 3 times its 3000 bytes when "
                                       "the tokeniser normalises it"));
  // Four characters in NFD, and three.
  EXPECT_TRUE(normalize(UnicodeForm::kNfd, "\u1f82", 10'000).ok());
  EXPECT_TRUE(normalize(UnicodeForm::kNfd, "\uac01", 10'000).ok());
}

// An insertion sort would take hours for a megabyte of marks.
TEST(UnicodeFormTest, MegabyteOfMarksIsSorted) {
  std::string text = "a", sorted = "a";
  constexpr int kPairs = 250'000;
  for (int i = 0; i < kPairs; ++i) text += "\u0315\u0323";
  const std::string composed = Nfc(text);
  for (int i = 1; i < kPairs; ++i) sorted += "\u0323";
  for (int i = 0; i < kPairs; ++i) sorted += "\u0315";
  EXPECT_EQ(composed, "\u1ea1" + sorted.substr(1));
}

}  // namespace
}  // namespace baton
