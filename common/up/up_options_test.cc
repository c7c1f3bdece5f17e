#include "common/up/up_options.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FlagTable FlagsOf(Role role) {
  const FlagTable workers = {
      {"listen", false},      {"routers", false},        {"threads", false},
      {"drain-grace", false}, {"log-level", false},      {"random-weights", true},
      {"cuda-graphs", true},  {"metrics-listen", false}, {"chunk-tokens", false}};
  FlagTable table = workers;
  switch (role) {
    case Role::kRouter:
      return {{"listen", false},    {"mode", false},        {"stall", false},
              {"log-level", false}, {"drain-grace", false}, {"metrics-listen", false},
              {"max-queued", false}};
    case Role::kPrefill:
      table["lease"] = false;
      return table;
    case Role::kDecode:
      table["stall"] = false;
      table["max-batch"] = false;
      return table;
  }
  return table;
}

class UpOptionsTest : public testing::Test {
 protected:
  UpOptionsTest() { model_.Write("config.json", "{}"); }

  absl::StatusOr<UpOptions> Parse(std::vector<std::string> words) {
    words.insert(words.begin(), absl::StrCat("--model=", model_.path()));
    return ParseUpOptions(words, FlagsOf);
  }
  // Returns the message with which the words are refused.
  std::string Refusal(std::vector<std::string> words) {
    const absl::StatusOr<UpOptions> options = Parse(std::move(words));
    EXPECT_TRUE(absl::IsInvalidArgument(options.status())) << options.status();
    return std::string(options.status().message());
  }

  const ScratchFolder model_;
};

TEST_F(UpOptionsTest, TheDemoModelIsServedWhereNoneIsGiven) {
  const ScratchFolder other;
  other.Write("config.json", "{}");
  const std::string demo = absl::StrCat("--demo-model=", other.path());
  const auto served = ParseUpOptions({demo}, FlagsOf);
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_TRUE(served->demo);
  EXPECT_EQ(served->model, std::filesystem::canonical(std::string(other.path())).string());
  const auto given = ParseUpOptions({"--model", std::string(model_.path()), demo}, FlagsOf);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_FALSE(given->demo);
  EXPECT_EQ(given->model, std::filesystem::canonical(std::string(model_.path())).string());
}

TEST_F(UpOptionsTest, ItsOwnFlagsInEverySpelling) {
  const UpOptions options = Parse({"--prefill", "2", "--decode=3", "--mode", "auto", "-prompt",
                                   "--once", "--listen=localhost:0", "--detach", "--no-install"})
                                .value();
  EXPECT_EQ(options.prefill, 2);
  EXPECT_EQ(options.decode, 3);
  EXPECT_EQ(options.mode, "auto");
  EXPECT_EQ(options.prompt, "--once") << "a value may look like a flag";
  EXPECT_EQ(options.listen, "localhost:0");
  EXPECT_FALSE(options.http_listen.has_value());
  EXPECT_TRUE(options.detach);
  EXPECT_FALSE(options.once);
}

TEST_F(UpOptionsTest, AFlagOfOneKindOfProgramNeedsNoPrefix) {
  UpOptions options = Parse({"--max-queued", "7", "--lease=9s", "--max_batch=4"}).value();
  EXPECT_THAT(options.flags[Role::kRouter], ElementsAre("--max-queued=7"));
  EXPECT_THAT(options.flags[Role::kPrefill], ElementsAre("--lease=9s"));
  EXPECT_THAT(options.flags[Role::kDecode], ElementsAre("--max-batch=4"));
}

TEST_F(UpOptionsTest, AFlagOfBothKindsOfWorkerGoesToBoth) {
  UpOptions options = Parse({"--threads=1", "--random-weights", "--no-cuda-graphs"}).value();
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    EXPECT_THAT(options.flags[role],
                ElementsAre("--threads=1", "--random-weights=true", "--cuda-graphs=false"));
  }
  EXPECT_THAT(options.flags[Role::kRouter], IsEmpty());
}

TEST_F(UpOptionsTest, APrefixGivesAFlagToOneRoleAndWinsOverOneForAll) {
  UpOptions options = Parse({"--decode-threads=4", "--threads=1", "--router-stall=9s",
                             "--decode-stall", "8s", "--prefill-no-cuda-graphs"})
                          .value();
  EXPECT_THAT(options.flags[Role::kDecode],
              ElementsAre("--threads=1", "--threads=4", "--stall=8s"));
  EXPECT_EQ(PassedValue(options, Role::kDecode, "threads"), "4");
  EXPECT_THAT(options.flags[Role::kPrefill], ElementsAre("--threads=1", "--cuda-graphs=false"));
  EXPECT_THAT(options.flags[Role::kRouter], ElementsAre("--stall=9s"));
  EXPECT_EQ(Parse({"--router-mode=auto"}).value().mode, "auto");
  EXPECT_EQ(Parse({"--router-listen=h:1"}).value().listen, "h:1");
  EXPECT_EQ(Parse({"--router-http-listen=h:1"}).value().http_listen, "h:1");
}

TEST_F(UpOptionsTest, AFlagWithOneMeaningForTheClusterGoesToAll) {
  UpOptions options = Parse({"--log-level=debug", "--drain-grace=2s"}).value();
  for (const Role role : kRoles) {
    EXPECT_THAT(options.flags[role], ElementsAre("--log-level=debug", "--drain-grace=2s"));
  }
}

TEST_F(UpOptionsTest, AFlagThatRouterAndWorkersShareOtherwiseNeedsAPrefix) {
  EXPECT_EQ(Refusal({"--stall=1s"}),
            "--stall is a flag of the router and of workers; write --router-stall or "
            "--decode-stall");
  EXPECT_THAT(Refusal({"--metrics-listen=h:1"}),
              HasSubstr("--router-metrics-listen or --prefill-metrics-listen or"));
}

TEST_F(UpOptionsTest, APortThatSeveralProcessesWouldTakeIsRefused) {
  EXPECT_THAT(Refusal({"--decode=2", "--decode-metrics-listen=h:91"}),
              AllOf(HasSubstr("h:91 goes to 2 processes"), HasSubstr("port 0")));
  EXPECT_THAT(Refusal({"--router-metrics-listen=h:91", "--decode-metrics-listen=h:91"}),
              HasSubstr("--metrics-listen h:91 goes to 2 processes"));
  EXPECT_TRUE(Parse({"--decode=2", "--decode-metrics-listen=h:0"}).ok());
  EXPECT_TRUE(Parse({"--decode-listen=127.0.0.1:91"}).ok());
}

TEST_F(UpOptionsTest, AnEmptyAddressSwitchesHttpOff) {
  EXPECT_EQ(Parse({"--http-listen", "localhost:0"}).value().http_listen, "localhost:0");
  EXPECT_EQ(Parse({"--http-listen="}).value().http_listen, "");
}

TEST_F(UpOptionsTest, APortOfAnotherListenerIsClaimed) {
  EXPECT_FALSE(Claims(Parse({}).value(), 91));
  EXPECT_FALSE(Claims(Parse({"--http-listen=h:91"}).value(), 91));
  for (const char* flag :
       {"--listen=h:91", "--router-metrics-listen=h:91", "--decode-listen=h:91"}) {
    EXPECT_TRUE(Claims(Parse({flag}).value(), 91)) << flag;
  }
}

TEST_F(UpOptionsTest, MistakesNameTheValueAndWhatToDo) {
  for (const auto& [words, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--colour"}, "unknown flag --colour of up, and of baton-router"},
           {{"--thread=2"}, "unknown flag --thread of up; did you mean --threads?"},
           {{"--decod=2"}, "did you mean --decode?"},
           {{"--decode-lease=2s"},
            "unknown flag --decode-lease of up: baton-decode has no --lease"},
           {{"--threads"}, "--threads needs a value"},
           {{"--prompt"}, "--prompt needs a value"},
           {{"--prompt="}, "--prompt takes a text"},
           {{"--once=maybe"}, "--once takes no value, but was given 'maybe'"},
           {{"words"}, "'words' is not expected here"},
           {{"--prefill=0"}, "--prefill takes 1 to 99, not '0'"},
           {{"--mode=colocated", "--prefill=0", "--decode=0"}, "--decode takes 1 to 99, not '0'"},
           {{"--decode=many"}, "not 'many'"},
           {{"--decode=100"}, "not '100'"},
           {{"--decode=-1"}, "not '-1'"},
           {{"--mode=both"}, "--mode takes disaggregated, colocated or auto, not 'both'"},
           {{"--listen=nowhere"}, "--listen takes HOST:PORT with a port from 0 to 65535, such as"},
           {{"--http-listen=8000"},
            "--http-listen takes HOST:PORT with a port from 0 to 65535, such"},
           {{"--once", "--detach"}, "can't be used together"}}) {
    EXPECT_THAT(Refusal(words), HasSubstr(said));
  }
  EXPECT_TRUE(Parse({"--mode=colocated", "--prefill=0"}).ok());
}

TEST_F(UpOptionsTest, AModelFolderIsLookedAtFirst) {
  const std::string file = model_.Write("empty/file", "");
  for (const auto& [model, said] : std::vector<std::pair<std::string, std::string>>{
           {model_.File("absent"), "absent: there is no such folder or file; check the path"},
           {file, "is a file, and no GGUF file; it takes one, or the folder"},
           {model_.Write("text.gguf.txt", ""), "is a file, and no GGUF file"},
           {"", "--model DIR is needed"}}) {
    const auto options = ParseUpOptions({"--model", model}, FlagsOf);
    EXPECT_THAT(options.status().message(), HasSubstr(said));
  }
  const std::string gguf = model_.Write("model.gguf", "");
  EXPECT_TRUE(ParseUpOptions({"--check", "--model", gguf}, FlagsOf).ok());
  const std::string unnamed = model_.Write("weights", "GGUF");
  EXPECT_TRUE(ParseUpOptions({"--check", "--model", unnamed}, FlagsOf).ok());
  // Without --check, ParseUpOptions accepts an empty folder: the router reports later that its
  // files are missing.
  const std::string empty = model_.File("empty");
  EXPECT_TRUE(ParseUpOptions({"--model", empty}, FlagsOf).ok());
  EXPECT_THAT(ParseUpOptions({"--check", "--model", empty}, FlagsOf).status().message(),
              HasSubstr("there is no config.json in it; it takes a Hugging Face folder"));
}

// Before the programs are built, `up --check` finds the mistakes that can be found without them.
TEST_F(UpOptionsTest, WithCheckWhatOnlyTheProgramsKnowIsAccepted) {
  const auto unbuilt = [](Role) -> absl::StatusOr<FlagTable> {
    return absl::UnavailableError("not built");
  };
  const std::string model = absl::StrCat("--model=", model_.path());
  EXPECT_TRUE(ParseUpOptions({"--check", model, "--threads", "2", "--once"}, unbuilt)->once);
  EXPECT_TRUE(absl::IsUnavailable(ParseUpOptions({model, "--threads", "2"}, unbuilt).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ParseUpOptions({"--check", model, "--mode=both"}, unbuilt).status()));
}

TEST(FlagTableTest, IsReadFromWhatAProgramLists) {
  EXPECT_THAT(ParseFlagTable("a-b value\nc bool\n"),
              ElementsAre(std::make_pair("a-b", false), std::make_pair("c", true)));
}

}  // namespace
}  // namespace baton
