#include "common/tokenizer/split_regex.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tokenizer/onig_pattern.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Pieces(absl::string_view pattern, absl::string_view text) {
  const auto regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (!regex.ok()) return {};
  std::vector<std::string> pieces;
  const absl::Status split = regex->Split(text, [&](absl::string_view piece, bool matched) {
    pieces.push_back((matched ? "+" : "-") + std::string(piece));
    return absl::OkStatus();
  });
  EXPECT_TRUE(split.ok()) << split;
  return pieces;
}

bool Matches(const SplitRegex& regex, char32_t code) {
  std::string text;
  AppendUtf8(code, &text);
  bool matches = false;
  EXPECT_TRUE(regex
                  .Split(text,
                         [&](absl::string_view, bool matched) {
                           matches = matched;
                           return absl::OkStatus();
                         })
                  .ok());
  return matches;
}

TEST(SplitRegexTest, MatchesAndGapsCoverTheText) {
  EXPECT_THAT(Pieces("[0-9]+", "a12b3"), ElementsAre("-a", "+12", "-b", "+3"));
  EXPECT_THAT(Pieces("x", ""), ElementsAre());
  EXPECT_THAT(Pieces("x", "abc"), ElementsAre("-abc"));
}

TEST(SplitRegexTest, EmptyMatchesCut) {
  EXPECT_THAT(Pieces("(?<=[a-z])(?=[A-Z])", "camelCaseWord"),
              ElementsAre("-camel", "+", "-Case", "+", "-Word"));
  EXPECT_THAT(Pieces("x*", "axxb"), ElementsAre("+", "-a", "+xx", "-b", "+"));
  EXPECT_THAT(Pieces("$", "ab\ncd"), ElementsAre("-ab", "+", "-\ncd", "+"));
  EXPECT_THAT(Pieces("", "ab"), ElementsAre("+", "-a", "+", "-b", "+"));
}

TEST(SplitRegexTest, WhiteSpaceIsThatOfUnicode) {
  for (const auto& [pattern, wanted] :
       {std::pair("\\s", true), std::pair("[\\s]", true), std::pair("\\S", false),
        std::pair("[\\S]", false), std::pair("[^\\S]", true)}) {
    const SplitRegex regex = SplitRegex::Compile(pattern).value();
    for (char32_t code = 0; code < 0x3100; ++code) {
      ASSERT_EQ(Matches(regex, code) == wanted, IsWhiteSpace(code))
          << pattern << ' ' << uint32_t{code};
    }
    EXPECT_EQ(Matches(regex, 0x10FFFF), !wanted);
  }
}

TEST(SplitRegexTest, CharactersNewerThanTheEngineCountAsTheirCategory) {
  const SplitRegex letter = SplitRegex::Compile("\\p{L}").value();
  const SplitRegex digit = SplitRegex::Compile("\\p{Nd}").value();
  const SplitRegex han = SplitRegex::Compile("\\p{Han}").value();
  EXPECT_TRUE(Matches(letter, 0x31350));  // CJK extension H, Unicode 15
  EXPECT_TRUE(Matches(han, 0x31350));
  EXPECT_TRUE(Matches(letter, 0x1C89));   // Cyrillic, Unicode 16
  EXPECT_TRUE(Matches(digit, 0x10D40));   // Garay, Unicode 16
  EXPECT_TRUE(Matches(letter, 0x13460));  // Egyptian, Unicode 16
  EXPECT_FALSE(Matches(han, 0x13460));
  EXPECT_FALSE(Matches(letter, 0x11DE0));  // a character of Unicode 17, which neither engine knows
}

TEST(SplitRegexTest, CharactersNewerThanTheEngineLieInTheRangesThatSpellThem) {
  EXPECT_THAT(Pieces("[\u0800-\u4e00]+", "a\u1c89\u1c8a"), ElementsAre("-a", "+\u1c89\u1c8a"));
}

TEST(SplitRegexTest, QuantifiersMeanWhatTheyDoInRuby) {
  // In Ruby, the + after {1,2} is a second quantifier, which repeats the first. In PCRE2 it would
  // make {1,2} possessive.
  EXPECT_THAT(Pieces("a{1,2}+b", "aaab"), ElementsAre("+aaab"));
  EXPECT_THAT(Pieces("a++ab", "aaab"), ElementsAre("-aaab"));  // ++ is possessive
  EXPECT_THAT(Pieces("a{,2}", "aaa"), ElementsAre("+aa", "+a"));
  EXPECT_THAT(Pieces("a{x", "a{x"), ElementsAre("+a{x"));
  EXPECT_THAT(Pieces("a{2}", "aaa"), ElementsAre("+aa", "-a"));
  EXPECT_THAT(Pieces("a+?", "aa"), ElementsAre("+a", "+a"));
  EXPECT_THAT(Pieces("a{2}{2}{,2}b", "aaaaaab"), ElementsAre("-aa", "+aaaab"));
  EXPECT_THAT(Pieces("a{2}*?b", "aaab"), ElementsAre("-a", "+aab"));
}

TEST(SplitRegexTest, CaselessGroupsFoldAsUnicodeDoes) {
  EXPECT_THAT(Pieces("(?i:'s|'LL)", "it'S we'll 'ſ"),
              ElementsAre("-it", "+'S", "- we", "+'ll", "- ", "+'ſ"));
}

TEST(SplitRegexTest, EscapesAreTranslated) {
  EXPECT_THAT(Pieces("[\\u4e00-\\u9fa5]+", "ab人工"), ElementsAre("-ab", "+人工"));
  EXPECT_THAT(Pieces("\\v", "a\vb\nc"), ElementsAre("-a", "+\v", "-b\nc"));
  EXPECT_THAT(Pieces("[\\^\\]\\-a]+", "b^]-ac"), ElementsAre("-b", "+^]-a", "-c"));
  EXPECT_THAT(Pieces("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", "1.ab [x"),
              ElementsAre("-1", "+.ab", "- ", "+[x"));
  EXPECT_THAT(Pieces("\\d+|\\w+", "ab_1 ١٢"), ElementsAre("+ab_1", "- ", "+١٢"));
  EXPECT_THAT(Pieces("^a", "ab\nab"), ElementsAre("+a", "-b\n", "+a", "-b"));
}

// The pieces are those of tokenizers 0.21.4.
TEST(SplitRegexTest, AClassInsideAClassAddsItsMembers) {
  // The pattern of BLOOM, Poro and Viking.
  constexpr char kBloom[] = " ?[^(\\s|[.,!?…。，、।۔،])]+";
  EXPECT_THAT(Pieces(kBloom, "Hello, world! (a|b) x.y  z"),
              ElementsAre("+Hello", "-,", "+ world", "-! (", "+a", "-|", "+b", "-)", "+ x", "-.",
                          "+y", "- ", "+ z"));
  EXPECT_THAT(Pieces(kBloom, "7B: (kyllä) | ei… 中。文"),
              ElementsAre("+7B:", "- (", "+kyllä", "-) |", "+ ei", "-…", "+ 中", "-。", "+文"));
  EXPECT_THAT(Pieces("[a[b-d]\\d]+", "xabc1dey2"), ElementsAre("-x", "+abc1d", "-ey", "+2"));
  EXPECT_THAT(Pieces("[[[a]]b]+", "xabx"), ElementsAre("-x", "+ab", "-x"));
  EXPECT_THAT(Pieces("[[a-]]+", "b-a"), ElementsAre("-b", "+-a"));
  EXPECT_THAT(Pieces("[[a]-]+", "b-a"), ElementsAre("-b", "+-a"));
  EXPECT_THAT(Pieces("[[.]&]+", "a.&b"), ElementsAre("-a", "+.&", "-b"));
  EXPECT_THAT(Pieces("(?i:[[a]b]+)", "xABx"), ElementsAre("-x", "+AB", "-x"));
}

TEST(SplitRegexTest, LiteralsMatchThemselves) {
  const SplitRegex regex = SplitRegex::CompileLiteral("a.[é").value();
  std::vector<std::string> pieces;
  ASSERT_TRUE(regex
                  .Split("xa.[éabé",
                         [&](absl::string_view piece, bool) {
                           pieces.emplace_back(piece);
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_THAT(pieces, ElementsAre("x", "a.[é", "abé"));
}

TEST(SplitRegexTest, WhatOnigurumaReadsOtherwiseIsRefused) {
  for (const char* pattern : {"(",        ")",           "a)",      "[",       "[]",
                              "[a",       "[a-",         "[b-a]",   "*",       "a|*",
                              "a{2,1}",   "a{99999}",    "\\",      "[\\",     "\\x{110000}",
                              "\\ud800",  "\\x80",       "\\p",     "\\p{",    "\\p{Nonsense}",
                              "\\pL",     "(?<name>a)",  "(?i)a",   "(?#c)",   "(?x: a)",
                              "\\1",      "\\k<a>",      "\\b",     "\\h",     "\\R",
                              "\\X",      "\\K",         "\\Qa",    "\\C",     "[[:alpha:]]",
                              "[a&&b]",   "[a[^b]]",     "[[a]-z]", "[a-[b]]", "[a[]]",
                              "[a[b]",    "[\\W]",       "[\\s-z]", "[a-\\s]", "(?i:\xC3\xA9)",
                              "(?i:ss)",  "(?i:\\p{L})", "a{2}?",   "^*",      "(?<=a+)b",
                              "(*UTF)a(", "\\xZ",        "\\x{41"}) {
    const auto regex = SplitRegex::Compile(pattern);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(regex.status().message()), HasSubstr("regular expression")) << pattern;
  }
  EXPECT_FALSE(SplitRegex::Compile(std::string(10000, '(')).ok());
  EXPECT_FALSE(SplitRegex::Compile(std::string(10000, '[')).ok());
  EXPECT_FALSE(SplitRegex::Compile("(?:(?:(?:a{60000}){60000}){60000}){60000}").ok());
  EXPECT_FALSE(SplitRegex::Compile("\xFF").ok());
}

TEST(SplitRegexTest, LongPatternsAreRefusedInAShortMessage) {
  const auto refusal = [](const std::string& pattern) {
    const absl::Status status = SplitRegex::Compile(pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_LT(status.message().size(), 300) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(std::string(16385, 'a')),
            "regular expression of 16385 bytes; supported: at most 16384");
  EXPECT_TRUE(SplitRegex::Compile(std::string(16384, 'a')).ok());
  EXPECT_THAT(
      refusal("a" + std::string(16383, '*')),
      HasSubstr("read as (?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:(?:..., "));
  EXPECT_THAT(refusal("(?<=a+)b"), HasSubstr("read as (?<=a+)b, byte "));
}

TEST(SplitRegexTest, BacktrackingWithoutBoundsEndsInAStatus) {
  const SplitRegex regex = SplitRegex::Compile("(?:a+)+$").value();
  const std::string text = std::string(60, 'a') + "b";
  const absl::Status split =
      regex.Split(text, [](absl::string_view, bool) { return absl::OkStatus(); });
  EXPECT_EQ(split.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(split.message()), HasSubstr("limit"));
}

TEST(SplitRegexTest, MatchThatNeedsMoreThanTheMachineStackGetsMore) {
  const std::string text(200'000, 'a');
  EXPECT_THAT(Pieces("(?:a|b)*c|(?:a|b)+", text), ElementsAre("+" + text));
}

TEST(SplitRegexTest, MatchThatNeedsMoreThanAllStackEndsInAStatus) {
  const SplitRegex regex = SplitRegex::Compile("(?:a|b)*c").value();
  const std::string text(20'000'000, 'a');
  const absl::Status split =
      regex.Split(text, [](absl::string_view, bool) { return absl::OkStatus(); });
  EXPECT_EQ(split.code(), absl::StatusCode::kInvalidArgument) << split;
}

}  // namespace
}  // namespace baton
