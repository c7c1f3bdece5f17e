#include "common/chat/chat_value.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/chat/chat_json.h"
#include "common/chat/origin_text.h"
#include "common/chat/python_text.h"
#include "common/chat/text_case.h"

namespace baton {
namespace {

std::string ReprOfJson(absl::string_view json) {
  const auto value = ParseChatJson(json);
  if (!value.ok()) return std::string(value.status().message());
  RenderMeter meter({});
  TextBuilder out(&meter);
  AppendRepr(*value, &out);
  return out.TakeText().Utf8();
}

TEST(ChatJsonTest, ValuesAreThoseOfPython) {
  EXPECT_EQ(ReprOfJson(R"({"b": 1, "a": [null, true, false], "b": "it's"})"),
            R"({'b': "it's", 'a': [None, True, False]})");
  EXPECT_EQ(ReprOfJson("[1e400, -0, -0.0, 1E5, NaN, -Infinity, 0.1, 1e16, 123456789012345678901]"),
            "[inf, 0, -0.0, 100000.0, nan, -inf, 0.1, 1e+16, 123456789012345678901]");
  EXPECT_EQ(ReprOfJson(R"(["\u00e9\ud83d\ude00\n\u0000", "\\\/\b"])"),
            R"(['é😀\n\x00', '\\/\x08'])");
  EXPECT_EQ(ReprOfJson(" [ ] "), "[]");
}

TEST(ChatJsonTest, WhatIsNoJsonIsRefused) {
  for (const char* json : {"", "[", "[1,]", "{1: 2}", "01", "1.", "+1", "'a'", "\"\n\"", "\"\\x\"",
                           "nul", "[1] 2", "{\"a\" 1}", "\"\xFF\"", "1e", "-"}) {
    EXPECT_EQ(ParseChatJson(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
  EXPECT_THAT(ReprOfJson(R"("\ud800")"), testing::HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(ReprOfJson(std::string(10'000, '[')), testing::HasSubstr("nests too deeply"));
  EXPECT_THAT(ReprOfJson(std::string(4301, '1')), testing::HasSubstr("4300 digits"));
}

TEST(ChatValueTest, NumbersOfAllKindsCompareExactly) {
  const ChatValue big = ChatValue::BigInt("9223372036854775808");
  const ChatValue small = ChatValue::Int(INT64_MAX);
  EXPECT_FALSE(ValuesEqual(big, small, nullptr));
  EXPECT_FALSE(ValuesEqual(small, ChatValue::Float(9223372036854775808.0), nullptr));
  EXPECT_TRUE(ValuesEqual(ChatValue::Bool(true), ChatValue::Float(1.0), nullptr));
  RenderMeter meter({});
  bool less = false;
  EXPECT_TRUE(ValueLess(small, big, &meter, &less));
  EXPECT_TRUE(less);
  EXPECT_FALSE(ValueLess(small, ChatValue::None(), &meter, &less));
}

TEST(ChatValueTest, ADictionaryFindsKeysAsPythonDoes) {
  ChatDict dict;
  for (int i = 0; i < 100; ++i) dict.Set(ChatValue::Int(i), ChatValue::Int(-i));
  dict.Set(ChatValue::Float(7.0), ChatValue::Int(1));
  EXPECT_EQ(dict.entries().size(), 100u);
  EXPECT_EQ(dict.Find(ChatValue::Int(7))->AsInt(), 1);
  EXPECT_EQ(dict.Find(ChatValue::Bool(true))->AsInt(), -1);
  EXPECT_EQ(dict.Find("7"), nullptr);
  EXPECT_EQ(dict.Find(ChatValue::List({})), nullptr);
}

TEST(FloatReprTest, FloatsAreShortestAndExact) {
  EXPECT_EQ(FloatRepr(0.1), "0.1");
  EXPECT_EQ(FloatRepr(100.0), "100.0");
  EXPECT_EQ(FloatRepr(1e15), "1000000000000000.0");
  EXPECT_EQ(FloatRepr(1e16), "1e+16");
  EXPECT_EQ(FloatRepr(0.0001), "0.0001");
  EXPECT_EQ(FloatRepr(0.00001), "1e-05");
  EXPECT_EQ(FloatRepr(-0.0), "-0.0");
  EXPECT_EQ(FloatRepr(5e-324), "5e-324");
  EXPECT_EQ(FloatRepr(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(FloatRepr(123456.789), "123456.789");
}

OriginText People(absl::string_view utf8) { return OriginText(utf8, TextOrigin::kPeople); }

TEST(OriginTextTest, SearchFindsOverlappingBeginnings) {
  const OriginText wanted = People("aab");
  const OriginTextSearch search(wanted);
  EXPECT_EQ(search.Find(People("aaab"), 0, 4), 1u);
  EXPECT_EQ(search.Find(People("aaab"), 2, 4), OriginTextSearch::kNone);
  EXPECT_EQ(search.Find(People("aaab"), 0, 3), OriginTextSearch::kNone);
  const OriginText empty;
  EXPECT_EQ(OriginTextSearch(empty).Find(People("ab"), 2, 2), 2u);
  EXPECT_EQ(OriginTextSearch(empty).Find(People("ab"), 3, 2), OriginTextSearch::kNone);
}

TEST(OriginTextTest, ComparisonsLookAtCharactersAlone) {
  EXPECT_TRUE(People("é") == OriginText("é", TextOrigin::kTemplate));
  EXPECT_LT(People("ab").Compare(People("b")), 0);
  EXPECT_GT(People("ab").Compare(People("a")), 0);
}

TEST(TextCaseTest, CasesAreThoseOfPython) {
  EXPECT_EQ(UpperCase(People("straße ﬁ ŉ")).Utf8(), "STRASSE FI ʼN");
  EXPECT_EQ(LowerCase(People("ΣΑΣ ΣΑΣ. Σ İ")).Utf8(), "σας σας. σ i̇");
  EXPECT_EQ(TitleCase(People("they're ǆ ßa")).Utf8(), "They'Re ǅ Ssa");
  EXPECT_EQ(Capitalize(People("ﬁRST WORD")).Utf8(), "First word");
  EXPECT_EQ(SwapCase(People("aBß")).Utf8(), "AbSS");
  EXPECT_EQ(CaseFold(People("Straße")).Utf8(), "strasse");
}

}  // namespace
}  // namespace baton
