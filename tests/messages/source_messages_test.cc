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

TEST(MessagesOfProgramTest, TheNameOfAParameterIsNoMessage) {
  EXPECT_THAT(Texts(MessagesOfProgram(R"cc(
                return BadParameter("prompt", absl::StrCat("it has ", n, " tokens"));
              )cc")),
              ElementsAre("it has … tokens"));
}

TEST(MessagesOfProgramTest, KnowsTheLine) {
  EXPECT_EQ(MessagesOfProgram("\n\nFail(\"too late\", now);")[0].line, 3);
}

TEST(RefusalsOfTest, PutsMessagesTogetherAsTheirFunctionsDo) {
  EXPECT_THAT(Texts(RefusalsOf(R"cc(
                constexpr char kHead[] = "head_dim";
                json.Fail(kHead, absl::StrCat("at most ", kMax, odd ? ", even" : ""));
                return node.Get("type")->Unsupported("\"BPE\"");
                return WrongType(absl::StrCat("an integer from ", low));
                return node.ErrorAt(suffix, absl::StrCat("found ", found, ", expected two"));
                return absl::NotFoundError(absl::StrCat(path, ": is ", a, b, " bytes"));
                return absl::Status(status.code(), absl::StrCat("weights: ", status.message()));
              )cc")),
              ElementsAre("head_dim is …; expected at most …", "supported: \"BPE\"",
                          "expected an integer from …", "found …, expected two", "is … bytes",
                          "weights: …"));
}

TEST(RefusalsOfTest, AMessageOfAnotherPlaceIsNamedByItsCall) {
  EXPECT_THAT(Texts(RefusalsOf(R"cc(
                                 void F() {
                                   constexpr char kExpected[] = "a list of strings";
                                   Fail(key, kExpected);
                                 }
                                 return node.Error(added.message());
                               )cc"
                               "\n}\nFail(key, kExpected);")),
              ElementsAre("… is …; expected a list of strings", "Error(added.message())",
                          "Fail(key, kExpected)"));
}

TEST(RefusalsOfTest, LeavesOutDeclarationsAndTypes) {
  EXPECT_THAT(Texts(RefusalsOf(R"cc(
                absl::Status Error(absl::string_view message) const;
                void JsonReader::Fail(absl::string_view key, absl::string_view expected) {}
                using Piece = absl::FunctionRef<absl::Status(absl::string_view)>;
                return absl::OkStatus();  // not an Error("of any kind")
              )cc")),
              IsEmpty());
}

TEST(RefusalsOfTest, FindsReturnedTexts) {
  constexpr char kSource[] = R"cc(
    if (!value.IsObject()) return "is not an object";
    fault = absl::StrCat("data_offsets begin at ", range[0]);
    return fault.empty() ? "" : fault;
    return absl::StrCat(folder, "/", name);
  )cc";
  EXPECT_THAT(Texts(RefusalsOf(kSource)), IsEmpty());
  EXPECT_THAT(Texts(RefusalsOf(kSource, /*returned_texts=*/true)),
              ElementsAre("is not an object", "data_offsets begin at …"));
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
