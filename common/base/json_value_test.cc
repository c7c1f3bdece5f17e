#include "common/base/json_value.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::unique_ptr<const JsonText> Parsed(absl::string_view text) {
  auto parsed = JsonText::Parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

TEST(JsonValueTest, EachAccessorTakesOnlyItsType) {
  const auto text = Parsed(R"({"s": "\u00e4", "b": true, "i": -7, "f": 1.0, "n": null, "o": {}})");
  const JsonValue root = text->root();
  EXPECT_TRUE(root.IsObject());
  EXPECT_EQ(root.size(), 6u);
  EXPECT_EQ(root.Member("s")->String(), "ä");
  EXPECT_EQ(root.Member("b")->Bool(), true);
  EXPECT_EQ(root.Member("i")->Int(), -7);
  EXPECT_TRUE(root.Member("n")->IsNull());
  for (const char* key : {"s", "f", "n", "o"}) {
    EXPECT_EQ(root.Member(key)->Int(), std::nullopt) << key;
    EXPECT_EQ(root.Member(key)->Bool(), std::nullopt) << key;
  }
  for (const char* key : {"b", "i", "n", "o"}) {
    EXPECT_EQ(root.Member(key)->String(), std::nullopt) << key;
  }
  EXPECT_EQ(root.Member("none"), std::nullopt);
  EXPECT_EQ(root.Member("i")->Member("s"), std::nullopt);
  EXPECT_EQ(root.Member("i")->size(), 0u);
}

TEST(JsonValueTest, AnIntegerAboveInt64IsNoInt) {
  const auto text = Parsed("[9223372036854775807, 9223372036854775808, 18446744073709551615]");
  std::vector<std::optional<int64_t>> values;
  std::vector<std::optional<uint64_t>> unsigned_values;
  EXPECT_TRUE(text->root()
                  .ForEachElement([&](JsonValue value) {
                    values.push_back(value.Int());
                    unsigned_values.push_back(value.UInt());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_THAT(values, ElementsAre(INT64_MAX, std::nullopt, std::nullopt));
  EXPECT_THAT(unsigned_values, ElementsAre(INT64_MAX, uint64_t{1} << 63, UINT64_MAX));
}

TEST(JsonValueTest, MembersComeInTheOrderOfTheTextAlsoThoseThatOccurTwice) {
  const auto text = Parsed(R"({"b": 1, "a": 2, "b": 3})");
  std::vector<std::pair<std::string, int64_t>> members;
  EXPECT_TRUE(text->root()
                  .ForEachMember([&](absl::string_view key, JsonValue value) {
                    members.emplace_back(std::string(key), *value.Int());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_THAT(members, ElementsAre(Pair("b", 1), Pair("a", 2), Pair("b", 3)));
}

TEST(JsonValueTest, AVisitEndsAtItsFirstErrorAndOtherTypesHaveNothingToVisit) {
  const auto text = Parsed("[1, 2, 3]");
  int visits = 0;
  const auto fail_at_two = [&](JsonValue value) {
    ++visits;
    return *value.Int() == 2 ? absl::OutOfRangeError("two") : absl::OkStatus();
  };
  EXPECT_EQ(text->root().ForEachElement(fail_at_two), absl::OutOfRangeError("two"));
  EXPECT_EQ(visits, 2);
  EXPECT_TRUE(Parsed("5")->root().ForEachElement(fail_at_two).ok());
  EXPECT_EQ(visits, 2);
}

TEST(JsonValueTest, DescriptionsAreShort) {
  EXPECT_EQ(Parsed("{}")->root().Describe(), "an object");
  EXPECT_EQ(Parsed("[1]")->root().Describe(), "an array");
  EXPECT_EQ(Parsed("1.5")->root().Describe(), "1.5");
  EXPECT_EQ(Parsed(R"("a\nb")")->root().Describe(), R"("a\nb")");
  // No character is cut in two: 59 letters and one character of two bytes are 61 bytes.
  const std::string letters(59, 'x');
  EXPECT_EQ(Parsed(absl::StrCat("\"", letters, "ä\""))->root().Describe(),
            absl::StrCat("\"", letters, "\"..."));
}

TEST(JsonTextTest, WhatIsNotOneJsonValueIsRefused) {
  for (const char* text : {"", "{", "{} {}", "nul", "\"\xff\""}) {
    const auto parsed = JsonText::Parse(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(parsed.status().message().empty());
  }
}

TEST(Utf8Test, OverlongFormsAndHalfCharactersAreNotUtf8) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xc3\xa4\xf0\x9f\x98\x80"));
  for (const char* text : {"\xc0\x80", "\xc3", "\xed\xa0\x80", "\xff", "a\x80"}) {
    EXPECT_FALSE(IsUtf8(text));
  }
}

}  // namespace
}  // namespace baton
