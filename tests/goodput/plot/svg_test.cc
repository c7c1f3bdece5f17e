#include "tests/goodput/plot/svg.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SvgTest, EscapesWhatMarkupMeans) {
  EXPECT_EQ(XmlEscaped("<a href=\"x\" b='y'>&</a>"),
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;&lt;/a&gt;");
  EXPECT_EQ(XmlEscaped("größer 漢字 🙂"), "größer 漢字 🙂");
}

TEST(SvgTest, WhatXmlCanNotHoldIsReplaced) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(XmlEscaped(absl::string_view("a\0b\x1b[1m\n", 8)),
            absl::StrCat("a", r, "b", r, "[1m\n"));
  EXPECT_EQ(XmlEscaped("\xff<"), r + "&lt;");
  EXPECT_EQ(XmlEscaped("\xc3"), r);  // The first byte of a two-byte character without the second.
  EXPECT_EQ(XmlEscaped("\xc0\xbc"), r + r);          // An overlong encoding of '<'.
  EXPECT_EQ(XmlEscaped("\xed\xa0\x80"), r + r + r);  // Half of a surrogate pair.
  EXPECT_EQ(XmlEscaped("\xef\xbf\xbf"), r + r + r);  // U+FFFF.
  EXPECT_EQ(XmlEscaped("\xf4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(XmlEscaped("\xf4\x8f\xbf\xbd"), "\xf4\x8f\xbf\xbd");
}

TEST(SvgTest, NumbersAreShortAndNeverWords) {
  EXPECT_EQ(SvgNumber(12), "12");
  EXPECT_EQ(SvgNumber(12.5), "12.5");
  EXPECT_EQ(SvgNumber(1.0 / 3), "0.33");
  EXPECT_EQ(SvgNumber(-0.001), "0");
  EXPECT_EQ(SvgNumber(NAN), "0");
  EXPECT_EQ(SvgNumber(INFINITY), "0");
}

TEST(SvgTest, TextIsCutToItsRoomBetweenCharacters) {
  EXPECT_EQ(FittedText("short", 12, 100), "short");
  const std::string cut = FittedText("grüße grüße grüße grüße", 12, 60);
  EXPECT_THAT(cut, testing::EndsWith("…"));
  EXPECT_LE(TextWidth(cut, 12), 60 + 12);
  EXPECT_EQ(XmlEscaped(cut), cut);
  EXPECT_EQ(FittedText("anything", 12, 0), "…");
}

TEST(SvgTest, StandaloneFilesBringTheirStyleAndNothingFromTheNet) {
  SvgCanvas canvas(100, 50, "<title>");
  canvas.Text(1, 2, "</svg><script>", "small");
  canvas.Marker(1, 2, 0, "f0", "\"<");
  const std::string svg = canvas.Standalone();
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr("&lt;/svg&gt;&lt;script&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 100 50\""));
  EXPECT_THAT(canvas.Inline(), Not(HasSubstr("<style")));
  const size_t scheme = svg.find("http");
  EXPECT_EQ(svg.substr(scheme, 26), "http://www.w3.org/2000/svg");
  EXPECT_EQ(svg.find("http", scheme + 1), svg.npos);
}

}  // namespace
}  // namespace baton
