#include "common/base/log.h"

#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"

namespace baton {
namespace {

using testing::HasSubstr;

std::string Line(LogFormat format, std::initializer_list<LogField> fields) {
  return LogLine(format, "T", Severity::kWarning, "baton-thing", "thing_done", fields);
}
std::string TextOf(const std::string& value) { return Line(LogFormat::kText, {{"v", value}}); }
nlohmann::json JsonOf(const std::string& value) {
  const std::string line = Line(LogFormat::kJson, {{"v", value}});
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  return nlohmann::json::parse(line).at("v");
}

TEST(LogTest, OneEventIsOneLineInBothFormats) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto line = [inf](LogFormat format) {
    return LogLine(format, "2026-01-02T03:04:05.000006Z", Severity::kInfo, "baton-thing",
                   "thing_done",
                   {{kRequestId, "r 1"},
                    {"tokens", 7},
                    {"rate", 0.5},
                    {"ok", true},
                    {"empty", ""},
                    {"never", inf}});
  };
  EXPECT_EQ(line(LogFormat::kText),
            "2026-01-02T03:04:05.000006Z I baton-thing thing_done request_id=\"r 1\" tokens=7 "
            "rate=0.5 ok=true empty=\"\" never=inf\n");
  EXPECT_EQ(line(LogFormat::kJson),
            "{\"time\":\"2026-01-02T03:04:05.000006Z\",\"level\":\"info\",\"component\":"
            "\"baton-thing\",\"event\":\"thing_done\",\"request_id\":\"r 1\",\"tokens\":7,"
            "\"rate\":0.5,\"ok\":true,\"empty\":\"\",\"never\":\"inf\"}\n");
}

TEST(LogTest, NobodysValueBeginsALineOrAField) {
  EXPECT_EQ(TextOf("x\n2026 E baton-thing stopped"),
            "T W baton-thing thing_done v=\"x\\n2026 E baton-thing stopped\"\n");
  EXPECT_EQ(TextOf("1 admin=true"), "T W baton-thing thing_done v=\"1 admin=true\"\n");
  EXPECT_EQ(TextOf("a\" b=\"c"), "T W baton-thing thing_done v=\"a\\\" b=\\\"c\"\n");
  EXPECT_EQ(TextOf("\r\x1b[2J\x7f"), "T W baton-thing thing_done v=\"\\r\\033[2J\\177\"\n");
  EXPECT_EQ(TextOf("a\\"), "T W baton-thing thing_done v=\"a\\\\\"\n");
  EXPECT_EQ(JsonOf("\",\"level\":\"error"), "\",\"level\":\"error");
  EXPECT_THAT(Line(LogFormat::kJson, {{"v", "a\nb\x1b\x7f"}}),
              HasSubstr("\"a\\u000ab\\u001b\\u007f\""));
}

TEST(LogTest, CharactersThatShowNothingAreEscaped) {
  // A C1 control character, a line separator, and a change of the text direction.
  for (const char* hidden : {"\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae"}) {
    EXPECT_EQ(JsonOf(hidden), hidden);
    EXPECT_EQ(Line(LogFormat::kJson, {{"v", hidden}}).find(hidden), std::string::npos);
    EXPECT_EQ(TextOf(hidden).find(hidden), std::string::npos);
  }
  EXPECT_THAT(Line(LogFormat::kJson, {{"v", "Größe 東京 🙂"}}),
              HasSubstr("\"Größe 東京 🙂\""));
}

TEST(LogTest, WhatIsNoUtf8IsReplaced) {
  for (const std::string bad :
       {"\xff", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    const std::string seen = JsonOf("a" + bad + "b");
    EXPECT_THAT(seen, testing::StartsWith("a\xef\xbf\xbd"));
    EXPECT_EQ(seen.back(), 'b');
  }
}

TEST(LogTest, LongValuesAreCutBetweenCharacters) {
  std::string text;
  while (text.size() < 5000) text += "\xe2\x82\xac";
  const std::string seen = JsonOf(text);
  EXPECT_LE(seen.size(), 2030u);
  EXPECT_THAT(seen, testing::EndsWith("\xe2\x82\xac... (5001 bytes)"));
  EXPECT_EQ(seen.find("\xef\xbf\xbd"), std::string::npos);
}

TEST(LogTest, AnyBytesGiveOneLineOfValidJsonAndOneOfText) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 256);
    JsonOf(bytes);  // checks that the line parses and that its only line end is the last byte
    const std::string text = TextOf(bytes);
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      ASSERT_TRUE(text[i] >= ' ' && text[i] < 0x7f) << "round " << round;
    }
  }
}

TEST(LogTest, LevelsAndFormatsHaveNames) {
  Severity severity = Severity::kInfo;
  LogFormat format = LogFormat::kText;
  std::string why;
  for (const char* name : {"debug", "info", "warn", "error"}) {
    EXPECT_TRUE(AbslParseFlag(name, &severity, &why));
    EXPECT_EQ(AbslUnparseFlag(severity), name);
  }
  EXPECT_EQ(severity, Severity::kError);
  EXPECT_TRUE(AbslParseFlag("json", &format, &why));
  EXPECT_EQ(AbslUnparseFlag(format), "json");
  EXPECT_FALSE(AbslParseFlag("INFO", &severity, &why));
  EXPECT_FALSE(AbslParseFlag("", &format, &why));
}

}  // namespace
}  // namespace baton
