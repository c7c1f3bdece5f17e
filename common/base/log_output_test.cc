#include "common/base/log_output.h"

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

std::string Lost(uint64_t dropped) { return absl::StrCat("lost ", dropped, "\n"); }

enum class Kind { kPipe, kPipeThatCannotBeOpenedAgain, kSocket };

// A pipe or a pair of sockets. The test reads only when it wants to.
class Channel {
 public:
  explicit Channel(Kind kind) {
    const int made = kind == Kind::kSocket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data())
                                           : pipe(ends_.data());
    EXPECT_EQ(made, 0);
  }
  ~Channel() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int write_end() const { return ends_[1]; }
  // Returns all that can be read now.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string all;
    std::array<char, 65536> part;
    for (ssize_t n; (n = read(ends_[0], part.data(), part.size())) > 0;) {
      all.append(part.data(), static_cast<size_t>(n));
    }
    return all;
  }

 private:
  std::array<int, 2> ends_;
};

class LogOutputTest : public ::testing::TestWithParam<Kind> {};

// Without a reader, writing must not wait. Later every line is there or counted.
TEST_P(LogOutputTest, LinesAreDroppedAndCountedWhileNobodyReads) {
  for (const size_t length : {20, 5000}) {  // a longer line may be written in part
    SCOPED_TRACE(length);
    Channel channel(GetParam());
    LogOutput output(channel.write_end(), GetParam() != Kind::kPipeThatCannotBeOpenedAgain);
    const auto line = [length](int i) {
      std::string text = absl::StrCat("line ", i, " ");
      text.resize(length, 'x');
      return text + "\n";
    };
    constexpr int kLines = 20000;
    std::string seen;
    for (int i = 0; i < kLines; ++i) {
      output.Write(line(i), Lost);
      if (i == kLines / 2) seen += channel.Read();
    }
    EXPECT_GT(output.dropped(), 0u);
    seen += channel.Read();
    output.Write(line(kLines), Lost);
    seen += channel.Read();
    uint64_t whole = 0, lost = 0;
    for (absl::string_view text : absl::StrSplit(seen, '\n', absl::SkipEmpty())) {
      uint64_t number = 0;
      if (absl::ConsumePrefix(&text, "lost ")) {
        ASSERT_TRUE(absl::SimpleAtoi(text, &number));
        lost += number;
      } else if (text.size() == length) {
        ++whole;
      } else {
        EXPECT_LT(text.size(), length);  // counted as lost
      }
    }
    EXPECT_EQ(lost, output.dropped());
    EXPECT_EQ(whole + lost, kLines + 1u);
  }
}

TEST_P(LogOutputTest, TheDescriptorKeepsItsMode) {
  Channel channel(GetParam());
  const int before = fcntl(channel.write_end(), F_GETFL);
  LogOutput output(channel.write_end(), GetParam() != Kind::kPipeThatCannotBeOpenedAgain);
  output.Write("a\n", Lost);
  EXPECT_EQ(fcntl(channel.write_end(), F_GETFL), before);
  EXPECT_EQ(channel.Read(), "a\n");
}

INSTANTIATE_TEST_SUITE_P(PipesAndSockets, LogOutputTest,
                         ::testing::Values(Kind::kPipe, Kind::kPipeThatCannotBeOpenedAgain,
                                           Kind::kSocket));

TEST(LogOutputFileTest, AFileGetsEveryLine) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/log";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_GE(fd, 0);
  {
    LogOutput output(fd);
    for (int i = 0; i < 3; ++i) output.Write(absl::StrCat(i, "\n"), Lost);
    EXPECT_EQ(output.dropped(), 0u);
  }
  close(fd);
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre("0", "1", "2"));
}

}  // namespace
}  // namespace baton
