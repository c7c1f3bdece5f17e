#include "common/tokenizer/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string Lossy(absl::string_view bytes, size_t expected_left) {
  std::string out;
  const size_t used = AppendLossyUtf8(bytes, &out);
  EXPECT_EQ(bytes.size() - used, expected_left);
  return out;
}

TEST(Utf8Test, EveryCharacterIsValidAndComesBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, &text);
    ASSERT_FALSE(FindInvalidUtf8(text).has_value()) << uint32_t{code};
    ASSERT_EQ(uint32_t{DecodeUtf8(text.data()).code}, uint32_t{code});
    const std::string behind_x = "x" + text;
    ASSERT_EQ(uint32_t{DecodeLastUtf8(behind_x).code}, uint32_t{code});
    ASSERT_EQ(static_cast<size_t>(DecodeUtf8(text.data()).bytes), text.size());
    ASSERT_EQ(Lossy(text, 0), text);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(FindInvalidUtf8("ab" + text.substr(0, cut)), 2u) << uint32_t{code};
      ASSERT_EQ(Lossy("a" + text.substr(0, cut), cut), "a") << uint32_t{code};
    }
  }
}

TEST(Utf8Test, FirstWrongByteIsNamed) {
  EXPECT_EQ(FindInvalidUtf8("abc\x80"), 3u);
  EXPECT_EQ(FindInvalidUtf8("\xFF"), 0u);
  EXPECT_EQ(FindInvalidUtf8("\xC3\xA9\xC0\x80"), 2u);          // an overlong form
  EXPECT_EQ(FindInvalidUtf8("\xE0\x9F\xBF"), 0u);              // an overlong form
  EXPECT_EQ(FindInvalidUtf8("x\xED\xA0\x80"), 1u);             // a surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0u);          // above U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("\xE2\x82\xAC\xE2\x28\xA1"), 3u);  // the second character is cut off
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
}

// Examples of the Unicode Standard 15, tables 3-8 to 3-11.
TEST(Utf8Test, MaximalIllFormedPartsAreOneReplacementEach) {
  const std::string r = kReplacementCharacter;
  EXPECT_EQ(Lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 0), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 0), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 0),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 0), r + r + r + r + "A");
}

}  // namespace
}  // namespace baton
