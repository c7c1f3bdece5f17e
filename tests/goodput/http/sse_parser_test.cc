#include "tests/goodput/http/sse_parser.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Collects the data of events.
struct Collected {
  std::vector<std::string> events;
  SseParser parser;
  absl::Status Feed(absl::string_view bytes) {
    return parser.Feed(bytes, [this](absl::string_view data) {
      events.emplace_back(data);
      return absl::OkStatus();
    });
  }
};

constexpr char kStream[] =
    ": a comment\n\n"
    "data: {\"a\": 1}\n\n"
    "event: named\r\ndata:no space\r\ndata:  two lines\r\nid: 7\r\n\r\n"
    "retry: 10\rdata\r\r"
    "\n\n\ndatabase: no\n\n"
    "data: [DONE]\n\n"
    "data: never ended";

TEST(SseParserTest, EverySplitGivesTheSameEvents) {
  const std::string stream = kStream;
  const std::vector<std::string> expected = {"{\"a\": 1}", "no space\n two lines", "", "[DONE]"};
  for (size_t first = 0; first <= stream.size(); ++first) {
    for (size_t second = first; second <= stream.size(); ++second) {
      Collected collected;
      ASSERT_TRUE(collected.Feed(absl::string_view(stream).substr(0, first)).ok());
      ASSERT_TRUE(collected.Feed(absl::string_view(stream).substr(first, second - first)).ok());
      ASSERT_TRUE(collected.Feed(absl::string_view(stream).substr(second)).ok());
      ASSERT_THAT(collected.events, ElementsAreArray(expected)) << first << " " << second;
      ASSERT_TRUE(collected.parser.in_event());
    }
  }
  Collected collected;
  for (const char& byte : stream) ASSERT_TRUE(collected.Feed({&byte, 1}).ok());
  EXPECT_THAT(collected.events, ElementsAreArray(expected));
}

TEST(SseParserTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  for (size_t split = 0; split < 5; ++split) {
    const std::string stream =
        "\xEF\xBB\xBF"
        "data: x\n\n";
    Collected collected;
    ASSERT_TRUE(collected.Feed(absl::string_view(stream).substr(0, split)).ok());
    ASSERT_TRUE(collected.Feed(absl::string_view(stream).substr(split)).ok());
    EXPECT_THAT(collected.events, ElementsAre("x"));
    EXPECT_FALSE(collected.parser.in_event());
  }
}

TEST(SseParserTest, AnEventThatIsTooLongIsRefused) {
  Collected collected;
  const std::string line = "data: " + std::string(1 << 20, 'x') + "\n";
  absl::Status status;
  for (int lines = 0; status.ok() && lines < 20; ++lines) status = collected.Feed(line);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  Collected endless;
  status = absl::OkStatus();
  const std::string part(1 << 20, 'x');
  for (int parts = 0; status.ok() && parts < 20; ++parts) status = endless.Feed(part);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(SseParserTest, StopsAtAnErrorOfTheReader) {
  SseParser parser;
  int events = 0;
  const absl::Status status =
      parser.Feed("data: 1\n\ndata: 2\n\ndata: 3\n\n", [&](absl::string_view data) {
        ++events;
        return data == "2" ? absl::DataLossError("two") : absl::OkStatus();
      });
  EXPECT_EQ(status, absl::DataLossError("two"));
  EXPECT_EQ(events, 2);
}

}  // namespace
}  // namespace baton
