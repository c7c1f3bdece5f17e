#include "router/http/ignored_fields.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(IgnoredFieldsTest, TheHeaderIsShortAndPrintable) {
  IgnoredFields ignored;
  EXPECT_EQ(IgnoredFieldsHeader(ignored), "");
  AddIgnoredField("", &ignored);
  EXPECT_EQ(IgnoredFieldsHeader(ignored), "\"\"");
  ignored = {};
  AddIgnoredField("a,b%\r\n c", &ignored);
  EXPECT_EQ(IgnoredFieldsHeader(ignored), "a%2Cb%25%0D%0A%20c");
  for (int i = 0; i < 30; ++i) AddIgnoredField(std::string(5000, '\x80'), &ignored);
  EXPECT_EQ(ignored.names.size(), 16u);
  EXPECT_EQ(ignored.count, 31u);
  const std::string header = IgnoredFieldsHeader(ignored);
  EXPECT_LE(header.size(), 1024u);
  EXPECT_GT(header.size(), 500u);
  EXPECT_TRUE(std::all_of(header.begin(), header.end(), [](char c) { return c > 32 && c < 127; }));
}

}  // namespace
}  // namespace baton
