#include "router/http/json_cursor.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Reads the whole text as one value.
absl::Status ReadAll(absl::string_view text) {
  JsonCursor cursor(text);
  RETURN_IF_ERROR(cursor.CheckUtf8());
  RETURN_IF_ERROR(cursor.Skip());
  return cursor.ReadEnd();
}

JsonCursor::Number NumberOf(absl::string_view text) {
  JsonCursor cursor(text);
  JsonCursor::Number number;
  EXPECT_TRUE(cursor.ReadNumber(&number).ok()) << text;
  return number;
}

TEST(JsonCursorTest, ReadsValuesInTheOrderOfTheText) {
  JsonCursor cursor(R"( {"a": [1, "x", true, null] , "": {}} )");
  std::vector<std::string> seen;
  const absl::Status status = cursor.ReadObject([&](absl::string_view key) {
    if (cursor.Peek() == JsonCursor::Kind::kObject) {
      seen.push_back(absl::StrCat("object at '", key, "'"));
      return cursor.Skip();
    }
    return cursor.ReadArray([&](size_t index) {
      seen.push_back(absl::StrCat(key, index, "=", cursor.Describe()));
      return cursor.Skip();
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(cursor.ReadEnd().ok());
  EXPECT_THAT(seen, ElementsAre("a0=1", "a1=\"x\"", "a2=true", "a3=null", "object at ''"));
}

TEST(JsonCursorTest, StringsAreUnescaped) {
  JsonCursor cursor(R"("\"\\\/\b\f\n\r\t\u00e4\u20AC\ud83d\ude00\u0000ä")");
  std::string value;
  ASSERT_TRUE(cursor.ReadString(&value).ok());
  EXPECT_EQ(value, std::string("\"\\/\b\f\n\r\tä€😀\0ä", 20));
}

TEST(JsonCursorTest, WholeNumbersAreIntegersHoweverTheyAreWritten) {
  for (const char* text : {"3", "3.0", "3e0", "0.3e1", "30E-1"}) {
    EXPECT_EQ(NumberOf(text).Int(), 3) << text;
    EXPECT_EQ(NumberOf(text).UInt(), 3u) << text;
  }
  EXPECT_EQ(NumberOf("-3.0").Int(), -3);
  EXPECT_EQ(NumberOf("-3.0").UInt(), std::nullopt);
  EXPECT_EQ(NumberOf("18446744073709551615").UInt(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(NumberOf("18446744073709551616").UInt(), std::nullopt);
  EXPECT_EQ(NumberOf("-9223372036854775808").Int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(NumberOf("9223372036854775808").Int(), std::nullopt);
  EXPECT_EQ(NumberOf("1e400").Int(), std::nullopt);
  EXPECT_EQ(NumberOf("0.5").Int(), std::nullopt);
}

TEST(JsonCursorTest, NumbersBeyondADoubleHaveNoValue) {
  EXPECT_EQ(NumberOf("1e400").Double(), std::nullopt);
  EXPECT_EQ(NumberOf("-1e400").Double(), std::nullopt);
  EXPECT_EQ(NumberOf("1e-400").Double(), 0);
  EXPECT_EQ(NumberOf("-0").Double(), 0);
  EXPECT_EQ(NumberOf(std::string(5000, '9')).Double(), std::nullopt);
  EXPECT_EQ(NumberOf("0.1").Double(), 0.1);
}

TEST(JsonCursorTest, ErrorsSayLineAndByteAndWhatStandsThere) {
  struct Case {
    std::string text;
    const char* message;
  };
  const Case cases[] = {
      {"{\n  \"a\": 1,\n  \"b\" 2}", "line 3, byte 7: there is '2' instead of ':'"},
      {"{\"a\": 1,}", "line 1, byte 9: there is '}' instead of a name in double quotes"},
      {"[1 2]", "there is '2' instead of ',' or ']'"},
      {"{'a': 1}", "there is '\\'' instead of a name in double quotes"},
      {"[1,", "the text ends, but a value has to follow"},
      {"\"ab", "the text ends, but the end of the string has to follow"},
      {"\"a\nb\"", "a string has no control characters"},
      {std::string("\"a\0b\"", 5), "there is '\\x00' instead of an escape"},
      {R"("\x")", "there is 'x' instead of one of"},
      {R"("\ud800")", "\\ud800 is half of a character"},
      {R"("\udc00")", "\\udc00 is half of a character"},
      {R"("\ud800\u0041")", "\\ud800 is half of a character"},
      {R"("\u12g4")", "four hexadecimal digits"},
      {"01", "a number has no leading zeros"},
      {"-", "the text ends, but a digit has to follow"},
      {"1.", "a digit has to follow"},
      {"1e+", "a digit has to follow"},
      {"NaN", "there is 'N' instead of a value"},
      {"Infinity", "there is 'I' instead of a value"},
      {"nul", "there is 'n' instead of a value"},
      {"{} {}", "there is '{' instead of the end of the body"},
      {"\xEF\xBB\xBF{}", "instead of a value"},
      {"\"\xff\"", "line 1, byte 2: the byte 0xff is not UTF-8"},
      {std::string(65, '['), "values are nested deeper than 64 levels"},
      {std::string(100000, '['), "values are nested deeper than 64 levels"},
  };
  for (const Case& c : cases) {
    const absl::Status status = ReadAll(c.text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the body is not valid JSON: line "));
  }
  EXPECT_TRUE(ReadAll(absl::StrCat(std::string(64, '['), std::string(64, ']'))).ok());
}

TEST(JsonCursorTest, TakesExactlyWhatAnotherParserTakes) {
  // Random changes of a valid text; about a third of the results are valid too.
  const std::string valid = R"({"a": [1, -2.5e3, "x\u00e4\n", true, null, {"b": []}], "c": "ä"})";
  const std::string bytes = R"({}[],:"\ue0123-+.tfn x)";
  std::mt19937 random(11);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = valid;
    for (size_t changes = random() % 3 + 1; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = bytes[random() % bytes.size()];
          break;
        case 1:
          text.erase(at, 1);
          break;
        default:
          text.insert(at, 1, bytes[random() % bytes.size()]);
      }
    }
    const bool is_json = nlohmann::json::accept(text);
    ASSERT_EQ(ReadAll(text).ok(), is_json) << text << "\n" << ReadAll(text);
    taken += is_json ? 1 : 0;
  }
  EXPECT_GT(taken, 1000);
}

TEST(JsonCursorTest, DescriptionsAreShortAndMoveNothing) {
  const std::string letters(59, 'x');
  const std::string text = absl::StrCat("\"", letters, "ä\"");
  JsonCursor cursor(text);
  EXPECT_EQ(cursor.Describe(), absl::StrCat("\"", letters, "\"..."));
  EXPECT_EQ(cursor.Peek(), JsonCursor::Kind::kString);
  EXPECT_EQ(JsonCursor(std::string(100, '1')).Describe(),
            absl::StrCat(std::string(60, '1'), "..."));
  EXPECT_EQ(JsonCursor("{").Describe(), "an object");
  EXPECT_EQ(JsonCursor("\"abc").Describe(), "a string");
  EXPECT_EQ(JsonCursor(" ]").Describe(), "nothing");
}

TEST(JsonPathTest, NamesMembersAndElements) {
  const JsonPath prompt = {.key = "prompt"};
  const JsonPath list = {.parent = &prompt, .index = 3};
  const JsonPath id = {.parent = &list, .index = 17};
  EXPECT_EQ(id.ToString(), "prompt[3][17]");
  const JsonPath bias = {.key = "logit_bias"};
  const JsonPath key = {.parent = &bias, .key = "50256"};
  EXPECT_EQ(key.ToString(), "logit_bias.50256");
  const JsonPath odd = {.key = "a\nb"};
  EXPECT_EQ(odd.ToString(), "a\\nb");
}

}  // namespace
}  // namespace baton
