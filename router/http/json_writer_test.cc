#include "router/http/json_writer.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

namespace baton {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

std::string FloatText(float value) {
  std::string out;
  AppendJsonFloat(value, &out);
  return out;
}

TEST(JsonWriterTest, StringsAreEscapedOnlyWhereTheyHaveToBe) {
  EXPECT_EQ(Quoted(""), R"("")");
  EXPECT_EQ(Quoted("a\"b\\c/d\n\r\t\b\f"), R"("a\"b\\c/d\n\r\t\b\f")");
  EXPECT_EQ(Quoted(absl::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(Quoted("ä€😀"), "\"ä€😀\"");
}

TEST(JsonWriterTest, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(Quoted("a\xff"
                   "b"),
            "\"a\xEF\xBF\xBD"
            "b\"");
  EXPECT_EQ(Quoted("\xe2\x98"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(Quoted("ä\xe2\x98 x"), "\"ä\xEF\xBF\xBD x\"");
}

TEST(JsonWriterTest, AnyBytesReadBackAsText) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 40, ' ');
    bool ascii = true;
    for (char& byte : bytes) {
      byte = static_cast<char>(random() % (round % 2 == 0 ? 128 : 256));
      ascii = ascii && static_cast<unsigned char>(byte) < 128;
    }
    const auto parsed = nlohmann::json::parse(Quoted(bytes), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(parsed.is_string()) << round;
    if (ascii) {
      EXPECT_EQ(parsed.get<std::string>(), bytes);
    }
  }
}

TEST(JsonWriterTest, FloatsAreTheShortestThatReadBack) {
  EXPECT_EQ(FloatText(-0.1f), "-0.1");
  EXPECT_EQ(FloatText(-9999), "-9999.0");
  EXPECT_EQ(FloatText(0), "0.0");
  EXPECT_EQ(FloatText(1e-8f), "1e-08");
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(nlohmann::json::parse(FloatText(value)).get<float>(), value);
  }
}

TEST(JsonWriterTest, NumbersThatJsonDoesNotHaveAreNull) {
  for (const float value : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_EQ(FloatText(value), "null");
  }
  std::string out;
  AppendJsonDouble(std::nan(""), &out);
  AppendJsonInt(std::numeric_limits<int64_t>::min(), &out);
  AppendJsonDouble(1.25, &out);
  EXPECT_EQ(out, "null-92233720368547758081.25");
}

}  // namespace
}  // namespace baton
