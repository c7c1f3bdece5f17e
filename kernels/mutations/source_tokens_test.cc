#include "kernels/mutations/source_tokens.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::mutations {
namespace {

std::vector<std::string> Texts(absl::string_view source) {
  std::vector<std::string> texts;
  for (const Token& token : Tokens(source)) texts.emplace_back(token.text);
  return texts;
}

TEST(SourceTokensTest, LeavesOutWhiteSpaceAndComments) {
  EXPECT_EQ(Texts("a // b\n  /* c\n d */ e"), (std::vector<std::string>{"a", "e"}));
}

TEST(SourceTokensTest, TakesTheLongestSymbol) {
  EXPECT_EQ(Texts("a<<=b->c::d&&!e"),
            (std::vector<std::string>{"a", "<<=", "b", "->", "c", "::", "d", "&&", "!", "e"}));
}

TEST(SourceTokensTest, NumbersKeepDotsExponentsAndSeparators) {
  EXPECT_EQ(Texts("1e-3f + .5 - 0x1e+2 * 10'000u"),
            (std::vector<std::string>{"1e-3f", "+", ".5", "-", "0x1e", "+", "2", "*", "10'000u"}));
}

TEST(SourceTokensTest, LiteralsMayHoldAnything) {
  EXPECT_EQ(Texts(R"(f("a \" // b", '\''))"),
            (std::vector<std::string>{"f", "(", R"("a \" // b")", ",", R"('\'')", ")"}));
}

TEST(SourceTokensTest, ALineOfThePreprocessorIsOneToken) {
  const std::vector<Token> tokens = Tokens("#define A(b) \\\n  (b)\nc # d\n");
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokens[0].kind, TokenKind::kDirective);
  EXPECT_EQ(tokens[1].text, "c");
  EXPECT_EQ(tokens[1].line, 3);
  EXPECT_EQ(tokens[2].kind, TokenKind::kSymbol);
}

TEST(SourceTokensTest, KnowsWhereEachTokenStands) {
  const std::vector<Token> tokens = Tokens("a\n\n  bc");
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[1].offset, 5u);
  EXPECT_EQ(tokens[1].line, 3);
}

TEST(SourceTokensTest, CodeThatEndsTooEarlyIsNoTrouble) {
  for (const char* source : {"", "\"a", "'", "/* a", "// a", "#if \\", "\"\\", "1e"}) {
    EXPECT_LE(Tokens(source).size(), 1u) << source;
  }
}

}  // namespace
}  // namespace baton::mutations
