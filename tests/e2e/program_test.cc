// How the programs start, refuse to start, and stop.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";

struct Outcome {
  int status = -1;
  std::string output;  // standard output and error together
};

Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments) {
  std::string command = absl::StrCat("timeout 20 ", BATON_BINARY_DIR, "/", program);
  for (const std::string& argument : arguments) absl::StrAppend(&command, " '", argument, "'");
  Outcome outcome;
  FILE* pipe = popen(absl::StrCat(command, " 2>&1 </dev/null").c_str(), "r");
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof(bytes), pipe)) outcome.output.append(bytes, got);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

const std::vector<std::string> kPrograms = {"baton-router", "baton-prefill", "baton-decode",
                                            "baton-client"};

TEST(ProgramTest, HelpAndVersionAnswerAndExitZero) {
  for (const std::string& program : kPrograms) {
    SCOPED_TRACE(program);
    const Outcome help = RunProgram(program, {"--help"});
    EXPECT_EQ(help.status, 0) << help.output;
    EXPECT_THAT(help.output, HasSubstr(program));
    EXPECT_THAT(help.output, HasSubstr("--"));
    const Outcome version = RunProgram(program, {"--version"});
    EXPECT_EQ(version.status, 0) << version.output;
    EXPECT_THAT(version.output, HasSubstr(absl::StrCat(program, " ")));
  }
}

struct BadStart {
  std::string program;
  std::vector<std::string> arguments;
  std::string says;
};

// Every refusal exits 2 and names what is wrong.
TEST(ProgramTest, EveryFlagIsChecked) {
  const std::string model = absl::StrCat("--model=", kDemoModel);
  std::vector<BadStart> cases = {
      {"baton-router", {"--model=/nowhere"}, "/nowhere"},
      {"baton-router", {model, "--listen=nowhere"}, "nowhere"},
      {"baton-prefill", {model, "--chunk-tokens=0"}, "chunk"},
      {"baton-prefill", {model, "--chunk-tokens=17"}, "17"},
      {"baton-prefill", {model, "--max-queue=0"}, "queue"},
      {"baton-prefill", {model, "--lease=0s"}, "lease"},
      {"baton-decode", {model, "--max-batch=0"}, "batch"},
      {"baton-decode", {model, "--max-sequences=-1"}, "sequences"},
      {"baton-decode", {model, "--stall=0s"}, "stall"},
      {"baton-decode", {model, "--pause-limit=-1s"}, "pause"},
  };
  for (const std::string& program : kPrograms) {
    cases.push_back({program, {"--no-such-flag"}, "no-such-flag"});
  }
  for (const std::string program : {"baton-prefill", "baton-decode"}) {
    cases.push_back({program, {}, "--model"});
    cases.push_back({program, {"--model=/nowhere"}, "/nowhere"});
    cases.push_back({program, {model, "stray"}, "stray"});
    cases.push_back({program, {model, "--listen=here"}, "here"});
    cases.push_back({program, {model, "--listen=127.0.0.1:99999"}, "99999"});
    cases.push_back({program, {model, "--listen=192.0.2.1:0"}, "192.0.2.1"});
    cases.push_back({program, {model, "--advertise=a:b:c"}, "a:b:c"});
    cases.push_back({program, {model, "--routers="}, "router"});
    cases.push_back({program, {model, "--routers=there"}, "there"});
    cases.push_back({program, {model, "--backend=tpu"}, "tpu"});
    cases.push_back({program, {model, "--threads=-1"}, "-1"});
    cases.push_back({program, {model, "--threads=many"}, "many"});
    cases.push_back({program, {model, "--kv-bytes=1000"}, "1000"});
    cases.push_back({program, {model, "--kv-bytes=-5"}, "-5"});
    cases.push_back({program, {model, "--kv-bytes=1000000000000000"}, "1000000000000000"});
    cases.push_back({program, {model, "--block-tokens=0"}, "--block-tokens"});
    cases.push_back({program, {model, "--kv-type=f8"}, "f8"});
    cases.push_back({program, {model, "--context=1000000"}, "1000000"});
    cases.push_back({program, {model, "--kv-transports=pigeon"}, "pigeon"});
    cases.push_back({program, {model, "--kv-net-device=nosuchdev0"}, "nosuchdev0"});
    cases.push_back({program, {model, "--drain-grace=-1s"}, "drain"});
  }
  for (const BadStart& c : cases) {
    std::string shown = c.program;
    for (const std::string& argument : c.arguments) absl::StrAppend(&shown, " ", argument);
    SCOPED_TRACE(shown);
    const Outcome outcome = RunProgram(c.program, c.arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(c.says));
  }
}

// A worker that drains finishes what runs, is given nothing new, and exits 0.
TEST(ProgramTest, SigtermDrainsWorkersAndRouter) {
  auto cluster = Cluster::Start({.prefill = 2, .decode = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const v1::GenerateRequest request = TokenRequest({5, 6, 7, 8}, 600);
  const Answer peace = Generate((*cluster)->stub(), request);
  ASSERT_TRUE(peace.status.ok()) << peace.status;
  bool drained = false;
  const Answer answer =
      Generate((*cluster)->stub(), request, absl::Seconds(60), [&](const v1::Token&) {
        if (drained) return;
        drained = true;
        (*cluster)->decode(0).Signal(SIGTERM);
        (*cluster)->prefill(0).Signal(SIGTERM);
      });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.ids(), peace.ids());
  for (Process* worker : {&(*cluster)->decode(0), &(*cluster)->prefill(0)}) {
    const auto status = worker->Wait(absl::Seconds(30));
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(*status, 0);
  }
  // The router, while it streams.
  bool asked = false;
  const Answer last =
      Generate((*cluster)->stub(), request, absl::Seconds(60), [&](const v1::Token&) {
        if (asked) return;
        asked = true;
        (*cluster)->router().Signal(SIGTERM);
      });
  EXPECT_TRUE(last.status.ok()) << last.status;
  EXPECT_EQ(last.ids(), peace.ids());
  const auto status = (*cluster)->router().Wait(absl::Seconds(30));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 0);
}

TEST(ProgramTest, ASecondSignalEndsAWorkerAtOnce) {
  auto cluster = Cluster::Start({});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  bool signalled = false;
  const Answer answer =
      Generate((*cluster)->stub(), TokenRequest({5, 6, 7, 8}, 4000), absl::Seconds(20),
               [&](const v1::Token& token) {
                 if (token.position() < 8 || signalled) return;
                 signalled = true;
                 (*cluster)->decode(0).Signal(SIGTERM);
                 absl::SleepFor(absl::Milliseconds(50));  // signals of one kind would merge
                 (*cluster)->decode(0).Signal(SIGINT);
               });
  const auto status = (*cluster)->decode(0).Wait(absl::Seconds(10));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 130);
}

}  // namespace
}  // namespace baton
