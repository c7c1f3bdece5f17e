#include "tests/messages/source_messages.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Texts(const std::vector<SourceMessage>& messages) {
  std::vector<std::string> texts;
  for (const SourceMessage& message : messages) texts.push_back(message.text);
  return texts;
}

TEST(MessagesOfProgramTest, PutsTextsTogether) {
  EXPECT_THAT(
      Texts(MessagesOfProgram(R"cc(
        RefuseToStart(
            "--to is missing: "
            "the folder to fill");
        return absl::NotFoundError(
            absl::StrCat("there is no ", name, 1'000, ": \"", absl::StrJoin(a, ","), "\""));
        return absl::InvalidArgumentError(absl::StrFormat("%d of %-5s: 9%%", a, b));
      )cc")),
      ElementsAre("--to is missing: the folder to fill", "there is no …: \"…\"", "… of …: 9%"));
}

TEST(MessagesOfProgramTest, EachAlternativeIsAMessage) {
  EXPECT_THAT(
      Texts(MessagesOfProgram(R"cc(
        SayFailure(absl::StrCat("it is up", at.empty() ? ", starting" : absl::StrCat(", at ", at),
                                a ? b ? " one" : " two" : " three"));
      )cc")),
      ElementsAre("it is up, starting one", "it is up, starting two", "it is up, starting three",
                  "it is up, at … one", "it is up, at … two", "it is up, at … three"));
}

TEST(MessagesOfProgramTest, LeavesOutWhatIsNoMessage) {
  EXPECT_THAT(Texts(MessagesOfProgram(R"cc(
                // RefuseToStart("in a comment");
                RefuseToStart(status.message());
                Log("refuse", "Refuse(\"in a text\")");
                MyError("not a status");
              )cc")),
              IsEmpty());
}

TEST(MessagesOfProgramTest, KnowsTheLine) {
  EXPECT_EQ(MessagesOfProgram("\n\nFail(\"too late\", now);")[0].line, 3);
}

TEST(MessagesOfScriptTest, FindsWhatItSays) {
  EXPECT_THAT(Texts(MessagesOfScript(
                  "x || die \"$(sed 's/\\([^\"]*\\)/\\1/' f) is ${old#, } or\\\n older\"\n"
                  "say \"installing $n packages:\"\nessay \"no\"\nrefuse \"unknown $*\"\n")),
              ElementsAre("… is … or older", "unknown …", "installing … packages:"));
}

TEST(MessagesOfTemplateTest, FindsWhatItRefuses) {
  EXPECT_THAT(
      Texts(MessagesOfTemplate(
          "{{- fail (printf \"%s.replicas is %d, 80 %% of '%v'\" $a $b) }}\n"
          "  {{- fail \"model.init is \\\"\\\"\" }}\n{{- required \"name is missing\" .x }}\n"
          "          [ -n \"$ids\" ] || fail \"no tokens of $ids\"\n")),
      ElementsAre("….replicas is …, 80 % of '…'", "name is missing", "model.init is \"\"",
                  "no tokens of …"));
}

}  // namespace
}  // namespace baton
