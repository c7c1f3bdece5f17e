#include "router/core/stop_matcher.h"

#include <random>

#include "gtest/gtest.h"

namespace baton {
namespace {

struct Cut {
  std::string text, matched;
  bool operator==(const Cut&) const = default;
};

// Reference implementation of StopMatcher, by plain search.
Cut Reference(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && stop.size() > longest.size() &&
          text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = stop;
      }
    }
    if (!longest.empty()) return {text.substr(0, end - longest.size()), longest};
  }
  return {text, ""};
}

TEST(StopMatcherTest, HoldsBackWhatMayBeginAStopStringAndNoMore) {
  StopMatcher matcher({"END.", "\n\n"});
  std::string out;
  EXPECT_FALSE(matcher.Feed("one EN", &out));
  EXPECT_EQ(out, "one ");
  EXPECT_FALSE(matcher.Feed("EN", &out));
  EXPECT_EQ(out, "one EN");
  EXPECT_FALSE(matcher.Feed("D", &out));
  EXPECT_TRUE(matcher.Feed(". more", &out));
  EXPECT_EQ(out, "one EN");
  EXPECT_EQ(matcher.matched(), "END.");
}

TEST(StopMatcherTest, TextThatMayNotMatchIsGivenOut) {
  StopMatcher matcher({"aa", "END"});
  std::string out;
  EXPECT_FALSE(matcher.Feed("xaaa", &out, /*may_match=*/false));
  EXPECT_EQ(out, "xaa");  // the last letter may begin "aa"
  EXPECT_FALSE(matcher.Feed("bEN", &out, /*may_match=*/false));
  EXPECT_EQ(out, "xaaab");
  // A string that ends in later text matches, although it begins in this one.
  EXPECT_TRUE(matcher.Feed("D.", &out));
  EXPECT_EQ(out, "xaaab");
  EXPECT_EQ(matcher.matched(), "END");
}

TEST(StopMatcherTest, HeldTextIsGivenOutAtTheEnd) {
  StopMatcher matcher({"stop"});
  std::string out;
  EXPECT_FALSE(matcher.Feed("to sto", &out));
  EXPECT_EQ(out, "to ");
  EXPECT_EQ(matcher.Flush(), "sto");
}

TEST(StopMatcherTest, RandomTextsInRandomPiecesAreCutAsTheReferenceSays) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto string_of = [&](size_t size) {
      std::string text;
      while (text.size() < size) text.push_back(static_cast<char>('a' + random() % 2));
      return text;
    };
    const std::string text = string_of(random() % 40);
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = string_of(1 + random() % 8);
    StopMatcher matcher(stops);
    std::string out;
    bool matched = false;
    for (size_t at = 0; at < text.size() && !matched;) {
      const size_t piece = std::min<size_t>(random() % 5, text.size() - at);
      matched = matcher.Feed(text.substr(at, piece), &out);
      at += piece;
      // Text that the matcher has given out must be final.
      ASSERT_EQ(out, text.substr(0, out.size())) << "seed " << seed;
    }
    if (!matched) out += matcher.Flush();
    ASSERT_EQ((Cut{out, matcher.matched()}), Reference(text, stops)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace baton
